use super::*;
use crate::nbd_client::protocol::Command;

fn request(offset: u64) -> Request {
    Request { command: Command::Read, offset, length: 512 }
}

#[test]
fn places_are_reused_and_old_cookies_name_nothing() {
    let mut in_flight = InFlight::new();
    let first = in_flight.insert(request(1), 'a');
    let second = in_flight.insert(request(2), 'b');
    assert_ne!(first, second);
    assert_eq!(in_flight.len(), 2);
    assert_eq!(in_flight.remove(first).unwrap().token, 'a');
    assert!(in_flight.remove(first).is_none(), "an answered request is not answered again");
    let third = in_flight.insert(request(3), 'c');
    assert_eq!(third as u32, first as u32, "the place is used again");
    assert!(in_flight.get_mut(first).is_none(), "but the old cookie does not name its new request");
    assert_eq!(in_flight.get_mut(third).unwrap().request.offset, 3);
    assert!(in_flight.get_mut(77).is_none());
    assert_eq!(in_flight.drain().len(), 2);
    assert_eq!(in_flight.len(), 0);
    assert!(in_flight.get_mut(second).is_none());
}

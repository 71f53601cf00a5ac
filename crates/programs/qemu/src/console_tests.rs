use spandrel_shared::VmId;
use tokio::io::AsyncReadExt as _;

use super::*;

#[tokio::test]
async fn one_at_a_time_has_the_console_and_sees_what_was_said_before() {
    let all = tempfile::tempdir().expect("there is room");
    let folder = VmFolder::of(all.path(), VmId::from_random(1, 2));
    let absent = VmConsole::open(&folder).await.err().map(|error| error.kind());
    assert_eq!(absent, Some(ErrorKind::NotFound), "nothing of it was ever here");
    folder.prepare().expect("there is room");
    std::fs::write(folder.join(CONSOLE_LOG), "before ").expect("there is room");
    let listener = folder.listen(CONSOLE_SOCKET).expect("there is room");
    let mut console = VmConsole::open(&folder).await.expect("it is there");
    let second = VmConsole::open(&folder).await.err().map(|error| error.kind());
    assert_eq!(second, Some(ErrorKind::AddrInUse));
    let (machine, _) = listener.accept().await.expect("it has connected");
    machine.try_write(b"and now").expect("there is room");
    let mut seen = [0; 14];
    console.read_exact(&mut seen).await.expect("so much was said");
    assert_eq!(&seen, b"before and now");
    drop(console);
    assert!(VmConsole::open(&folder).await.is_ok(), "the next one may");
}

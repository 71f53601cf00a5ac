use super::*;

fn keys(is_terminal: bool) -> (mpsc::UnboundedSender<Vec<u8>>, Keys) {
    let (sender, pressed) = mpsc::unbounded_channel();
    (sender, Keys { pressed, unsent: Vec::new(), is_open: true, is_terminal })
}

fn run<T>(task: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("it can be made").block_on(task)
}

/// The machine takes so much of what is sent, and leaves.
fn taken_of(typed: &mut Keys, taken_max: usize) -> Vec<u8> {
    run(async {
        let (own, mut machine) = tokio::io::duplex(taken_max);
        let leave = async {
            let mut taken = vec![0; taken_max];
            machine.read_exact(&mut taken).await.expect("it is sent");
            drop(machine);
            taken
        };
        let (side, taken) = tokio::join!(exchange(own, typed), leave);
        assert!(matches!(side, Ok(Side::Machine)));
        taken
    })
}

#[test]
fn what_a_program_sends_while_its_machine_moves_is_sent_there_in_order() {
    let (sender, mut typed) = keys(false);
    let all: Vec<u8> = (0..=255).collect();
    for part in all.chunks(100) {
        sender.send(part.to_vec()).expect("it is open");
    }
    let mut taken = taken_of(&mut typed, 40);
    assert!(!typed.want_to_leave(), "no key leaves that a program sends");
    taken.extend(taken_of(&mut typed, 100));
    drop(sender);
    run(async {
        while let Some(keys) = typed.next().await {
            taken.extend(keys);
        }
    });
    assert_eq!(taken, all);
}

#[test]
fn keys_of_a_terminal_that_come_while_its_machine_is_away_are_lost_but_for_the_one_that_leaves() {
    let (sender, mut typed) = keys(true);
    sender.send(b"ls\r".to_vec()).expect("it is open");
    assert!(!typed.want_to_leave());
    assert!(typed.pressed.try_recv().is_err());
    sender.send(vec![b'x', LEAVE]).expect("it is open");
    assert!(typed.want_to_leave());
}

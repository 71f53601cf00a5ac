//! The load generator of a guest.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use spandrel_shared::Error;

use super::words::{GuestCost, Line, Order, Preparation, ProgressCounts, Report, Said, Words};
use crate::generator::{Client, Generator};
use crate::target::{Target, TargetPlace};
use crate::times::now;

/// How often it is told what was done so far.
const TICK: Duration = Duration::from_millis(500);

/// How often it is looked whether the load is over.
const LOOK: Duration = Duration::from_millis(20);

/// How much is taken in at once, in bytes.
const READ_BYTES: usize = 16 << 10;

/// Does in a guest what the fleet says, on one of its drives.
pub struct GuestAgent<W> {
    drive: String,
    port: W,
}

impl<W: Write> GuestAgent<W> {
    /// For the drive at `drive`, of which the fleet hears at `port`.
    pub fn new(drive: String, port: W) -> Self {
        Self { drive, port }
    }

    /// Does what is said at `orders`. When nothing can be heard there, since nobody is connected, `away` says after a while whether it is
    /// to be heard on.
    pub fn serve(
        &mut self,
        mut orders: impl Read + Send + 'static,
        away: impl Fn() -> bool + Send + 'static,
    ) {
        let (sender, heard) = mpsc::channel();
        std::thread::spawn(move || {
            let (mut words, mut buffer) = (Words::default(), vec![0; READ_BYTES]);
            loop {
                match orders.read(&mut buffer) {
                    Ok(0) | Err(_) if !away() => return,
                    Ok(0) | Err(_) => {}
                    Ok(count) => {
                        for line in words.take_in(&buffer[..count]) {
                            if sender.send(line).is_err() {
                                return;
                            }
                        }
                    }
                }
            }
        });
        let mut next = heard.recv().ok();
        while let Some(Line { session, word }) = next.take() {
            next = match word {
                Order::Prepare(preparation) => self.run(session, &preparation, &heard),
                // Of a session that is over.
                Order::Start(_) | Order::Stop => None,
            };
            next = next.or_else(|| heard.recv().ok());
        }
    }

    fn say(&mut self, session: u64, word: Said) {
        // If nobody hears it, somebody asks anew.
        let _ = self.port.write_all(&Line { session, word }.to_bytes());
    }

    /// Carries out one session. The order that has ended it, if it is of another one.
    fn run(
        &mut self,
        session: u64,
        prepared: &Preparation,
        heard: &Receiver<Line<Order>>,
    ) -> Option<Line<Order>> {
        let target = Target::at(prepared.name.clone(), TargetPlace::Drive(self.drive.clone()));
        let connected = Generator::connect_from(prepared.client, &[target], &prepared.spec, prepared.task);
        let mut generator = match connected {
            Ok(generator) => generator,
            Err(error) => {
                self.say(session, Said::Failed(error));
                return None;
            }
        };
        self.say(session, Said::Ready);
        match heard.recv() {
            Ok(Line { session: same, word: Order::Start(plan) }) if same == session => {
                generator.start(|start| plan.times(start));
            }
            other => {
                // Until its threads have ended the drive is theirs.
                let _ = generator.finish();
                return other.ok().filter(|line| line.session != session);
            }
        }
        let next = self.watch(session, &mut generator, heard);
        let ended = report(generator).map_or_else(Said::Failed, |report| Said::Ended(Box::new(report)));
        self.say(session, ended);
        next
    }

    /// Tells how far the load is, until it is over or to end. The order that has ended it, if it is of another session.
    fn watch(
        &mut self,
        session: u64,
        generator: &mut Generator,
        heard: &Receiver<Line<Order>>,
    ) -> Option<Line<Order>> {
        let mut told = now();
        while !generator.is_over() {
            match heard.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(line) => {
                    generator.stop();
                    // One of another session: nobody waits for this one any more.
                    return Some(line).filter(|line| line.session != session);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    generator.stop();
                    return None;
                }
            }
            if now().since(told) >= TICK {
                told = now();
                self.say(session, Said::Progress(counts(generator.clients())));
            }
        }
        None
    }
}

fn counts(clients: &[Client]) -> ProgressCounts {
    clients.iter().fold(ProgressCounts::default(), |sum, client| {
        let counters = &client.counters;
        ProgressCounts {
            done: sum.done + counters.done.load(Ordering::Relaxed),
            done_bytes: sum.done_bytes + counters.done_bytes.load(Ordering::Relaxed),
            failed: sum.failed + counters.failed.load(Ordering::Relaxed),
            latency_sum_ns: sum.latency_sum_ns.wrapping_add(counters.latency_sum_ns.load(Ordering::Relaxed)),
        }
    })
}

/// What the only client of a load has counted.
fn report(generator: Generator) -> Result<Report, Error> {
    let mut reports = generator.finish()?;
    let died = || {
        let next = "this is a fault of the program: please report it";
        Error::new("FLEET_LOAD_THREAD_DIED", "a guest's load has no result", "it was never begun", next)
    };
    let mut report = reports.pop().ok_or_else(died)?;
    let (_, tally) = report.outcome.clients.pop().ok_or_else(died)?;
    Ok(Report { tally, cost: GuestCost { cpu: report.cpu, wall: report.wall } })
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;

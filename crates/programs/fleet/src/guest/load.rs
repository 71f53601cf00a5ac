//! A client whose load is in a guest, as the fleet has it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use spandrel_platform::{Address, Connection, LinkError, Platform, before};
use spandrel_shared::Error;

use super::words::{GuestCost, Line, Order, Plan, Preparation, ProgressCounts, Report, Said, Words};
use crate::tally::{ClientCounters, ClientTally};
use crate::times::LoadTimes;

/// How long a guest may take until it is ready: so long, as it may have to boot first, and so much longer for each that boots beside it.
const READY_TIME_MAX: Duration = Duration::from_secs(180);
const READY_TIME_EACH: Duration = Duration::from_secs(10);

/// How much is taken in at once, in bytes.
const RECEIVE_BYTES: usize = 64 << 10;

/// What is known of a client whose load is in a guest.
pub(crate) struct GuestLoad<C> {
    name: String,
    session: u64,
    connection: C,
    report: RefCell<Option<Report>>,
    /// Why there will be no report.
    lost: RefCell<Option<(Duration, String)>>,
}

/// A guest that is ready for its load.
pub(crate) struct GuestSession<C> {
    load: Rc<GuestLoad<C>>,
    words: Words,
    buffer: Vec<u8>,
}

impl<C: Connection> GuestSession<C> {
    /// Has the load generator of the guest behind `socket` make a load ready, one of so many `guests`.
    ///
    /// # Errors
    /// `FLEET_GUEST_SILENT`, or what the guest says.
    pub(crate) async fn open<P: Platform<Connection = C>>(
        platform: &P,
        socket: &str,
        preparation: Preparation,
        guests: u32,
    ) -> Result<Self, Error> {
        let name = preparation.name.clone();
        let silent = |why: String| {
            Error::new(
                "FLEET_GUEST_SILENT",
                format!("the guest of client {name} does not begin"),
                why,
                "see what it says with `spandrel vm console`",
            )
        };
        let address = Address::Unix(socket.to_owned());
        let connection = platform.connect(&address).await.map_err(|error| silent(error.to_string()))?;
        let load = GuestLoad {
            name: name.clone(),
            session: platform.random_u64(),
            connection,
            report: RefCell::default(),
            lost: RefCell::default(),
        };
        // What an earlier session has said in part ends here.
        load.connection.send(b"\n", &[]);
        load.say(Order::Prepare(Box::new(preparation)));
        let mut session =
            Self { load: Rc::new(load), words: Words::default(), buffer: vec![0; RECEIVE_BYTES] };
        let time_max = READY_TIME_MAX + READY_TIME_EACH * guests;
        let ready = before(platform, platform.now() + time_max, session.ready()).await;
        match ready.unwrap_or_else(|| Ok(Err(format!("it says nothing for {} s", time_max.as_secs())))) {
            Ok(Ok(())) => Ok(session),
            Ok(Err(why)) => Err(silent(why)),
            Err(error) => Err(error),
        }
    }

    /// What is known of it, while it runs.
    pub(crate) fn load(&self) -> Rc<GuestLoad<C>> {
        Rc::clone(&self.load)
    }

    /// Waits until the guest is ready. The inner error is that it cannot be heard; the outer one is what it says.
    async fn ready(&mut self) -> Result<Result<(), String>, Error> {
        loop {
            let said = match self.hear().await {
                Ok(said) => said,
                Err(error) => return Ok(Err(error.to_string())),
            };
            for word in said {
                match word {
                    Said::Ready => return Ok(Ok(())),
                    Said::Failed(error) => return Err(error),
                    Said::Progress(_) | Said::Ended(_) => {}
                }
            }
        }
    }

    /// What the guest says next.
    async fn hear(&mut self) -> Result<Vec<Said>, LinkError> {
        let count = self.load.connection.receive(&mut self.buffer).await?;
        if count == 0 {
            return Err(LinkError::Other("the virtual machine has ended".to_owned()));
        }
        let lines: Vec<Line<Said>> = self.words.take_in(&self.buffer[..count]);
        let own = |line: Line<Said>| (line.session == self.load.session).then_some(line.word);
        Ok(lines.into_iter().filter_map(own).collect())
    }

    /// Has the load run until the guest says that it is over, or nothing any more.
    pub(crate) async fn run<P: Platform>(
        mut self,
        platform: P,
        times: Arc<LoadTimes>,
        counters: Arc<ClientCounters>,
    ) {
        self.load.say(Order::Start(Plan::of(&times)));
        let lost = loop {
            let said = match self.hear().await {
                Ok(said) => said,
                Err(error) => break error.to_string(),
            };
            let mut ended = None;
            for word in said {
                match word {
                    Said::Ready => {}
                    Said::Progress(counts) => show(&counters, &counts),
                    Said::Failed(error) => ended = Some(Err(error.to_string())),
                    Said::Ended(report) => ended = Some(Ok(*report)),
                }
            }
            match ended {
                None => {}
                Some(Ok(report)) => {
                    *self.load.report.borrow_mut() = Some(report);
                    return;
                }
                Some(Err(why)) => break why,
            }
        };
        counters.is_lost.store(true, Ordering::Relaxed);
        *self.load.lost.borrow_mut() = Some((platform.now().since(times.start), lost));
    }
}

impl<C: Connection> GuestLoad<C> {
    fn say(&self, word: Order) {
        self.connection.send(&Line { session: self.session, word }.to_bytes(), &[]);
    }

    /// Ends the load before its time.
    pub(crate) fn stop(&self) {
        self.say(Order::Stop);
    }

    /// What the guest has counted. If it has not said so, the client counts as lost, `after` the load has begun.
    pub(crate) fn finish(&self, after: Duration) -> ClientTally {
        self.connection.close();
        if let Some(report) = &*self.report.borrow() {
            return report.tally.clone();
        }
        let unheard = || (after, "it has not said what it has counted".to_owned());
        let (at, why) = self.lost.borrow().clone().unwrap_or_else(unheard);
        let mut tally = ClientTally::new(&self.name, false);
        tally.is_lost = true;
        tally.tell(at, "guest", None, why);
        tally
    }

    /// What the load generator has cost there, if it has said so.
    pub(crate) fn cost(&self) -> Option<GuestCost> {
        self.report.borrow().as_ref().map(|report| report.cost)
    }
}

fn show(counters: &ClientCounters, counts: &ProgressCounts) {
    counters.done.store(counts.done, Ordering::Relaxed);
    counters.done_bytes.store(counts.done_bytes, Ordering::Relaxed);
    counters.failed.store(counts.failed, Ordering::Relaxed);
    counters.latency_sum_ns.store(counts.latency_sum_ns, Ordering::Relaxed);
}

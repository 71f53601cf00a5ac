//! Explores the model: shows how far it is, what it has found, and a counterexample as a story.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use spandrel_model::{Action, Configuration, OwnershipModel, Rule, Rules, State, story};
use stateright::report::{ReportData, ReportDiscovery, Reporter};
use stateright::{Checker, HasDiscoveries, Model};

/// Explores the rules of ownership and replication in every order of events.
///
/// Ends with 0 if there is no counterexample and everything was met that should be, with 1 if not.
#[derive(Parser)]
struct Arguments {
    /// Take away a rule, to see what it is for. May be given several times.
    #[arg(long, value_name = "RULE")]
    without: Vec<Rule>,
    /// The world to explore. Without a rule, a small one that shows its lack is explored if none is
    /// named; else every one that the tests explore.
    #[arg(long, value_name = "NAME", value_parser = Configuration::names())]
    configuration: Option<String>,
    /// The highest epoch, in place of the configuration's.
    #[arg(long)]
    epochs: Option<u8>,
    /// Writes, in place of the configuration's.
    #[arg(long)]
    writes: Option<u8>,
    /// Crashes, in place of the configuration's.
    #[arg(long)]
    crashes: Option<u8>,
    /// Lost answers of the cluster's state, in place of the configuration's.
    #[arg(long)]
    lost_answers: Option<u8>,
    /// How many times a copy is marked stale, in place of the configuration's.
    #[arg(long)]
    marks: Option<u8>,
    /// Threads. With one, a counterexample is the same in every run, and among the shortest.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

impl Arguments {
    fn configurations(&self) -> Vec<Configuration> {
        let chosen = match (&self.configuration, self.without.first()) {
            (Some(name), _) => Configuration::every().filter(|known| known.name == name).collect(),
            (None, Some(rule)) => vec![Configuration::showing(*rule)],
            (None, None) => Configuration::EXPLORED.to_vec(),
        };
        let changed = |configuration: Configuration| Configuration {
            epochs: self.epochs.unwrap_or(configuration.epochs),
            writes: self.writes.unwrap_or(configuration.writes),
            crashes: self.crashes.unwrap_or(configuration.crashes),
            lost_answers: self.lost_answers.unwrap_or(configuration.lost_answers),
            marks: self.marks.unwrap_or(configuration.marks),
            ..configuration
        };
        chosen.into_iter().map(changed).collect()
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let rules = Rules::without(arguments.without.iter().copied());
    let mut is_sound = true;
    for configuration in arguments.configurations() {
        is_sound &= explore(OwnershipModel::new(configuration, rules), arguments.threads);
    }
    if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Explores one world. Returns whether it was found as it should be.
fn explore(model: OwnershipModel, threads: usize) -> bool {
    let Configuration { name, epochs, writes, crashes, lost_answers, marks, .. } = model.configuration;
    println!(
        "{name}: up to epoch {epochs}, {writes} writes, {crashes} crashes, {lost_answers} lost answers, {marks} marks"
    );
    let checker = model.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    let mut report = Report { model, is_broken: false, is_complete: true };
    checker.spawn_bfs().join_and_report(&mut report);
    if report.is_broken && model.is_reduced {
        println!("told in a world in which nodes keep their places:");
        return explore(OwnershipModel { is_reduced: false, ..model }, threads);
    }
    !report.is_broken && report.is_complete
}

struct Report {
    model: OwnershipModel,
    is_broken: bool,
    is_complete: bool,
}

impl Reporter<OwnershipModel> for Report {
    fn report_checking(&mut self, data: ReportData) {
        let seconds = data.duration.as_secs_f64();
        println!(
            "  {} states, {} steps, {} deep, {seconds:.1} s{}",
            data.unique_states,
            data.total_states,
            data.max_depth.saturating_sub(1),
            if data.done { ": done" } else { "" }
        );
    }

    fn report_discoveries(
        &mut self,
        model: &OwnershipModel,
        discoveries: std::collections::BTreeMap<&'static str, ReportDiscovery<OwnershipModel>>,
    ) {
        let mut shortest: Option<Vec<(State, Option<Action>)>> = None;
        for property in model.properties() {
            match discoveries.get(property.name) {
                Some(found) if property.expectation.discovery_is_failure() => {
                    self.is_broken = true;
                    println!("  broken: {}", property.name);
                    let path = story::until_broken(model, found.path.clone().into_vec());
                    if shortest.as_ref().is_none_or(|shortest| path.len() < shortest.len()) {
                        shortest = Some(path);
                    }
                }
                None if !property.expectation.discovery_is_failure() => {
                    self.is_complete = false;
                    println!("  not met: {}", property.name);
                }
                _ => {}
            }
        }
        match shortest {
            None => println!("  no counterexample"),
            Some(path) if !self.model.is_reduced => print!("{}", story::tell(&self.model, &path)),
            Some(_) => {}
        }
    }

    fn delay(&self) -> Duration {
        Duration::from_secs(5)
    }
}

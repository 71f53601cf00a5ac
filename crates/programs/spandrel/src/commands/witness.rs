//! `spandrel witness`.

use crate::arguments::WitnessCommand;
use crate::commands::cluster::{join, remove};
use crate::failure::Outcome;
use crate::reach::Reach;
use crate::server::run;

/// Carries out a command about a witness.
pub fn witness(reach: &Reach, command: &WitnessCommand) -> Outcome {
    match command {
        WitnessCommand::Join(arguments) => join(&reach.directory()?, arguments, true),
        WitnessCommand::Remove(arguments) => remove(&reach.client()?, arguments, true),
        WitnessCommand::Run(arguments) => run::run(reach.directory()?, true, arguments.log),
    }
}

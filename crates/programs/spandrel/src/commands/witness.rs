//! `spandrel witness`.

use crate::admin::client::Client;
use crate::arguments::WitnessCommand;
use crate::commands::cluster::{join, remove};
use crate::directory::Directory;
use crate::failure::Outcome;
use crate::server::run;

/// Carries out a command about a witness.
pub fn witness(directory: Directory, command: &WitnessCommand) -> Outcome {
    match command {
        WitnessCommand::Join(arguments) => join(&directory, arguments, true),
        WitnessCommand::Remove(arguments) => remove(&Client::new(directory)?, arguments, true),
        WitnessCommand::Run(arguments) => run::run(directory, true, arguments.verbose),
    }
}

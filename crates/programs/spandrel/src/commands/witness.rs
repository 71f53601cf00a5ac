//! `spandrel witness`.

use crate::arguments::WitnessCommand;
use crate::commands::cluster::join;
use crate::directory::Directory;
use crate::failure::Outcome;
use crate::server::run;

/// Carries out a command about a witness.
pub fn witness(directory: Directory, command: &WitnessCommand) -> Outcome {
    match command {
        WitnessCommand::Join(arguments) => join(&directory, arguments, true),
        WitnessCommand::Run(arguments) => run::run(directory, true, arguments.verbose),
    }
}

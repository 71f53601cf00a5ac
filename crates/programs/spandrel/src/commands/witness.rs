//! `spandrel witness`.

use crate::arguments::{ThreadArguments, VmHostArguments, WitnessCommand};
use crate::commands::cluster::join;
use crate::commands::removal::remove_witness;
use crate::commands::restart::restart_server;
use crate::failure::Outcome;
use crate::reach::Reach;
use crate::server::run;

/// Carries out a command about a witness.
pub fn witness(reach: &Reach, command: &WitnessCommand) -> Outcome {
    match command {
        WitnessCommand::Join(arguments) => join(&reach.directory()?, arguments, true),
        WitnessCommand::Remove(arguments) => remove_witness(&reach.client()?, arguments),
        WitnessCommand::Restart(arguments) => restart_server(&reach.client()?, arguments, true),
        WitnessCommand::Run(arguments) => run::run(
            reach.directory()?,
            true,
            &ThreadArguments::default(),
            &VmHostArguments::default(),
            arguments.log,
        ),
    }
}

//! `spandrel fault` and `spandrel explain`.

use clap::{Args, Subcommand};

use super::OutputArguments;

/// `spandrel fault`.
#[derive(Clone, Debug, Subcommand)]
pub enum FaultCommand {
    /// Show everything that is the matter, the most severe first, with what to do about it
    ///
    /// A fault is there as long as its cause, and needs no acknowledgement. What follows from another one is not shown
    /// beside it, like the drives of a node that is down.
    List(OutputArguments),
}

/// `spandrel explain`.
#[derive(Clone, Debug, Subcommand)]
pub enum ExplainCommand {
    /// Why a volume is as it is
    Volume(ExplainArguments),
    /// Why a node is as it is
    Node(ExplainArguments),
    /// Why a drive is as it is
    Drive(ExplainArguments),
    /// Why the pool is as it is
    Pool(OutputArguments),
}

/// `spandrel explain volume`, `node` and `drive`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArguments {
    /// Its name
    pub name: String,

    /// How to print it.
    #[command(flatten)]
    pub output: OutputArguments,
}

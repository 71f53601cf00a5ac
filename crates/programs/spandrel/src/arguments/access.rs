//! `spandrel access`: who may use the admin API.

use clap::{Args, Subcommand, ValueEnum};

use super::OutputArguments;

/// `spandrel access`.
#[derive(Clone, Debug, Subcommand)]
pub enum AccessCommand {
    /// List who may use the admin API
    #[command(alias = "ls")]
    List(OutputArguments),
    /// Let somebody use the admin API, and print the token that they show
    Create(AccessCreateArguments),
    /// Take somebody's access back
    #[command(alias = "rm")]
    Delete(AccessNameArguments),
}

/// `spandrel access create`.
#[derive(Clone, Debug, Args)]
pub struct AccessCreateArguments {
    /// Who: letters, digits, '-', '_' and '.'
    pub name: String,

    /// How much they may do
    #[arg(long, value_enum)]
    pub role: RoleArgument,
}

/// A role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleArgument {
    /// Look at everything
    Read,
    /// Also make, move and check volumes, drain and resume nodes
    Operate,
    /// Everything
    Administer,
}

/// `spandrel access delete`.
#[derive(Clone, Debug, Args)]
pub struct AccessNameArguments {
    /// Who
    pub name: String,

    /// Only say whose access would be taken back
    #[arg(long)]
    pub dry_run: bool,
}

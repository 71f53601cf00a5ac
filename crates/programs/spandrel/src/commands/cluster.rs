//! `spandrel cluster`, and joining one.

use std::path::{Path, PathBuf};

use spandrel_shared::Error;
use spandrel_trust::JoinToken;

use crate::admin::access::find_join;
use crate::admin::administration::unix_ms;
use crate::admin::api::{self, JoinTokenAnswer, JoinTokenStatus, StateIdentity, StateStatus};
use crate::admin::client::{Client, path_with};
use crate::arguments::{
    ClusterCommand, ClusterInitArguments, JoinArguments, JoinTokenCommand, JoinTokenNameArguments, Output,
    ServerArguments,
};
use crate::commands::recover::{backup, recover, settle};
use crate::commands::restart::{restart_cluster, servers};
use crate::commands::status;
use crate::directory::Directory;
use crate::failure::{EXIT_OK, Outcome, system_error};
use crate::reach::Reach;
use crate::server::found::{ExternalState, NewCluster, found};
use crate::server::join::{self, NewServer};
use crate::table::Table;
use crate::text::{json, say};

/// Carries out a command about the cluster as a whole.
pub fn cluster(reach: &Reach, command: &ClusterCommand) -> Outcome {
    match command {
        ClusterCommand::Init(arguments) => return init(&reach.directory()?, arguments),
        ClusterCommand::Backup(arguments) => return backup(&reach.client()?, &arguments.file),
        ClusterCommand::Recover(arguments) => return recover(&reach.directory()?, arguments),
        ClusterCommand::Settle(arguments) => return settle(&reach.client()?, arguments),
        ClusterCommand::Servers(arguments) => return servers(&reach.client()?, *arguments),
        ClusterCommand::Restart(arguments) => return restart_cluster(&reach.client()?, arguments),
        ClusterCommand::Status(arguments) => return status(&reach.client()?, *arguments),
        ClusterCommand::JoinToken(arguments) => {
            return join_token(&reach.client()?, arguments.command.as_ref());
        }
        ClusterCommand::State(arguments) => {
            let state: StateStatus = reach.client()?.get(api::STATE)?;
            say(&match arguments.output {
                Output::Table => render_state(&state),
                Output::Json => json(&state),
            });
        }
    }
    Ok(EXIT_OK)
}

fn init(directory: &Directory, arguments: &ClusterInitArguments) -> Outcome {
    let new = NewCluster {
        name: arguments.name.clone(),
        node_name: name_of(&arguments.server)?,
        listen: arguments.server.listen.clone(),
        slab_bytes: Some(arguments.slab_size),
        etcd: program_path(&arguments.server.etcd)?,
        state: external_state(arguments)?,
    };
    let token = found(directory, new)?;
    let dir = directory.path().display();
    say(&format!(
        "cluster {} made; its first node is in {dir}\n\n\
         run the node:           spandrel --dir {dir} node run\n\
         let other servers join: spandrel --dir DIR node join TOKEN --listen ADDRESS\n\
         the token, good for a week; whoever has it can join:\n\n{token}\n",
        arguments.name
    ));
    Ok(EXIT_OK)
}

/// The etcd of others that is to hold the state, if one was named.
fn external_state(arguments: &ClusterInitArguments) -> Result<Option<ExternalState>, Error> {
    if arguments.state.is_empty() {
        return Ok(None);
    }
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path).map_err(|error| {
            Error::new(
                "STATE_CREDENTIALS_UNREADABLE",
                "the cluster is not made",
                format!("{}: {error}", path.display()),
                "name a file in PEM that you may read",
            )
        })
    };
    let files = [&arguments.state_authority, &arguments.state_certificate, &arguments.state_key];
    let identity = match files.map(Option::as_ref) {
        [Some(authority), Some(certificate), Some(key)] => Some(StateIdentity {
            authority_pem: read(authority)?,
            certificate_pem: read(certificate)?,
            key_pem: read(key)?,
        }),
        // One needs the others.
        _ => None,
    };
    Ok(Some(ExternalState { addresses: arguments.state.clone(), identity }))
}

fn join_token(client: &Client, command: Option<&JoinTokenCommand>) -> Outcome {
    match command {
        None | Some(JoinTokenCommand::Create) => {
            let answer: JoinTokenAnswer = client.post(api::JOIN_TOKEN, &())?;
            say(&format!("{}\n", answer.token));
        }
        Some(JoinTokenCommand::List(arguments)) => {
            let tokens: Vec<JoinTokenStatus> = client.get(api::JOIN_TOKEN)?;
            say(&match arguments.output {
                Output::Table => render_tokens(&tokens, unix_ms()),
                Output::Json => json(&tokens),
            });
        }
        Some(JoinTokenCommand::Revoke(JoinTokenNameArguments { id, dry_run: true })) => {
            let tokens: Vec<JoinTokenStatus> = client.get(api::JOIN_TOKEN)?;
            let number = find_join(id, tokens.into_iter().map(|token| token.id))?;
            say(&format!("nobody could join with {number} any more\n"));
        }
        Some(JoinTokenCommand::Revoke(arguments)) => {
            client.delete(&path_with(api::JOIN_TOKEN_OF, &arguments.id))?;
            say(&format!("nobody can join with {} any more\n", arguments.id));
        }
    }
    Ok(EXIT_OK)
}

fn render_tokens(tokens: &[JoinTokenStatus], now_unix_ms: u64) -> String {
    if tokens.is_empty() {
        return "none is valid\n".to_owned();
    }
    let mut table = Table::new(&["TOKEN", ">VALID FOR"]);
    for token in tokens {
        let hours = token.expires_unix_ms.saturating_sub(now_unix_ms) / 3_600_000;
        table.row([token.id.clone(), format!("{} d {} h", hours / 24, hours % 24)]);
    }
    table.render()
}

/// The token, from wherever it is given. What stands in a command line others can read.
fn read_token(arguments: &JoinArguments) -> Result<JoinToken, Error> {
    let unreadable = |place: String, error: std::io::Error| {
        let next = "name a file that this user may read, or give the token itself";
        Error::new("TOKEN_UNREADABLE", "the join token cannot be read", format!("{place}: {error}"), next)
    };
    let text = match (&arguments.token, &arguments.token_file) {
        (_, Some(path)) => {
            std::fs::read_to_string(path).map_err(|error| unreadable(path.display().to_string(), error))?
        }
        (Some(token), None) if token == "-" => std::io::read_to_string(std::io::stdin())
            .map_err(|error| unreadable("standard input".to_owned(), error))?,
        (token, None) => token.clone().unwrap_or_default(),
    };
    text.parse()
}

/// Lets this server join a cluster.
pub fn join(directory: &Directory, arguments: &JoinArguments, witness: bool) -> Outcome {
    let token = read_token(arguments)?;
    let new = NewServer {
        name: name_of(&arguments.server)?,
        listen: arguments.server.listen.clone(),
        witness,
        etcd: program_path(&arguments.server.etcd)?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| system_error("the program cannot start", &error))?;
    let settings = runtime.block_on(join::join(directory, &token, new))?;
    let (kind, command) = if witness { ("witness", "witness run") } else { ("node", "node run") };
    say(&format!(
        "{kind} {} has joined cluster {}\n\nrun it: spandrel --dir {} {command}\n",
        settings.name,
        settings.cluster_name,
        directory.path().display()
    ));
    Ok(EXIT_OK)
}

/// A program that is found again from whatever directory it is started: a name that is looked for in `PATH` stays one.
fn program_path(program: &Path) -> Result<PathBuf, Error> {
    if program.components().count() == 1 && program.file_name() == Some(program.as_os_str()) {
        return Ok(program.to_owned());
    }
    std::path::absolute(program)
        .map_err(|error| system_error(format!("{} cannot be used", program.display()), &error))
}

/// The name of a new server: the one that was given, or the machine's.
fn name_of(arguments: &ServerArguments) -> Result<String, Error> {
    let name = match &arguments.node_name {
        Some(name) => name.clone(),
        None => {
            let machine = rustix::system::uname();
            machine.nodename().to_string_lossy().split('.').next().unwrap_or_default().to_owned()
        }
    };
    spandrel_shared::name::validate_name("server", &name)?;
    Ok(name)
}

fn render_state(state: &StateStatus) -> String {
    let mut table = Table::new(&["SERVER", "RUNS", "VOTE", "ETCD"]);
    for member in &state.members {
        let vote = match (member.votes, member.leads) {
            (_, true) => "yes, leads",
            (true, false) => "yes",
            (false, false) => "no",
        };
        let runs = match (member.server, member.runs) {
            (_, true) => "yes",
            (None, false) => "not known",
            (Some(_), false) => "no",
        };
        table.row([member.name.clone(), runs.to_owned(), vote.to_owned(), member.endpoints.join(" ")]);
    }
    table.render()
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;

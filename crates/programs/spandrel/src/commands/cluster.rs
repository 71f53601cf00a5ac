//! `spandrel cluster`, and joining one.

use spandrel_shared::Error;
use spandrel_trust::JoinToken;

use crate::admin::api::{self, JoinTokenAnswer, StateStatus};
use crate::admin::client::Client;
use crate::arguments::{ClusterCommand, ClusterInitArguments, JoinArguments, Output, ServerArguments};
use crate::commands::status;
use crate::directory::Directory;
use crate::failure::{EXIT_OK, Outcome, system_error};
use crate::server::found::{NewCluster, found};
use crate::server::join::{self, NewServer};
use crate::table::Table;
use crate::text::{json, say};

/// Carries out a command about the cluster as a whole.
pub fn cluster(directory: Directory, command: &ClusterCommand) -> Outcome {
    match command {
        ClusterCommand::Init(arguments) => return init(&directory, arguments),
        ClusterCommand::Status(arguments) => return status(&Client::new(directory)?, *arguments),
        ClusterCommand::JoinToken => {
            let answer: JoinTokenAnswer = Client::new(directory)?.post(api::JOIN_TOKEN, &())?;
            say(&format!("{}\n", answer.token));
        }
        ClusterCommand::State(arguments) => {
            let state: StateStatus = Client::new(directory)?.get(api::STATE)?;
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
        etcd: arguments.server.etcd.clone(),
        state_endpoints: (!arguments.state.is_empty()).then(|| arguments.state.clone()),
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

/// Lets this server join a cluster.
pub fn join(directory: &Directory, arguments: &JoinArguments, witness: bool) -> Outcome {
    let token: JoinToken = arguments.token.parse()?;
    let new = NewServer {
        name: name_of(&arguments.server)?,
        listen: arguments.server.listen.clone(),
        witness,
        etcd: arguments.server.etcd.clone(),
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
    let mut table = Table::new(&["SERVER", "VOTE", "ETCD"]);
    for member in &state.members {
        let vote = match (member.votes, member.leads) {
            (_, true) => "yes, leads",
            (true, false) => "yes",
            (false, false) => "no",
        };
        table.row([member.name.clone(), vote.to_owned(), member.endpoints.join(" ")]);
    }
    table.render()
}

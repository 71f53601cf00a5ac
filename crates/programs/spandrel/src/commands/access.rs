//! `spandrel access`.

use spandrel_cluster::Role;

use crate::admin::access::access_not_found;
use crate::admin::api::{self, Access, AccessCreate, AccessCreated};
use crate::admin::client::{Client, path_with};
use crate::arguments::{AccessCommand, AccessNameArguments, Output, RoleArgument};
use crate::failure::{EXIT_OK, Outcome};
use crate::table::Table;
use crate::text::{json, say};

/// Carries out a command about who may use the admin API.
pub fn access(client: &Client, command: &AccessCommand) -> Outcome {
    match command {
        AccessCommand::List(arguments) => {
            let access: Vec<Access> = client.get(api::ACCESS)?;
            say(&match arguments.output {
                Output::Table => render_list(&access),
                Output::Json => json(&access),
            });
        }
        AccessCommand::Create(arguments) => {
            let role = match arguments.role {
                RoleArgument::Read => Role::Read,
                RoleArgument::Operate => Role::Operate,
                RoleArgument::Administer => Role::Administer,
            };
            let create = AccessCreate { name: arguments.name.clone(), role };
            let created: AccessCreated = client.post(api::ACCESS, &create)?;
            say(&format!("{}\n", created.token));
        }
        AccessCommand::Delete(AccessNameArguments { name, dry_run: true }) => {
            let access: Vec<Access> = client.get(api::ACCESS)?;
            let known = access.iter().find(|access| access.name == *name);
            let Access { role, .. } = known.ok_or_else(|| access_not_found(name))?;
            say(&format!("{name}, whose role is {role}, would have no access any more\n"));
        }
        AccessCommand::Delete(arguments) => {
            client.delete(&path_with(api::ACCESS_OF, &arguments.name))?;
            say(&format!("{} has no access any more\n", arguments.name));
        }
    }
    Ok(EXIT_OK)
}

fn render_list(access: &[Access]) -> String {
    if access.is_empty() {
        return "nobody but those who can use a node's directory\n".to_owned();
    }
    let mut table = Table::new(&["NAME", "ROLE"]);
    for access in access {
        table.row([access.name.clone(), access.role.to_string()]);
    }
    table.render()
}

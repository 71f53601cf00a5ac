//! Who may use the admin API, and what lets servers join.

use spandrel_cluster::{AccessRecord, Role, StateKey, Stored};
use spandrel_shared::Error;
use spandrel_shared::name::validate_name;
use spandrel_trust::{AccessToken, Fingerprint, Secret};

use super::administration::{Administration, state_error, unix_ms};
use super::api::{Access, AccessCreate, AccessCreated, JoinTokenStatus};

/// Digits of a join token's digest by which people name it.
const JOIN_ID_DIGITS: usize = 8;

impl Administration {
    /// How much the bearer of `token` may do.
    ///
    /// Errors: `TOKEN_MISSING`, `TOKEN_INVALID`, `TOKEN_REFUSED`.
    pub async fn role_of(&self, token: Option<&str>) -> Result<Role, Error> {
        let refuse = |code: &str, why: &str| {
            let next = "have one made on a node of the cluster (`spandrel access create`), and give it with \
                        --token-file or SPANDREL_TOKEN";
            Error::new(code, "the cluster does not know who asks", why, next)
        };
        let token = token.ok_or_else(|| refuse("TOKEN_MISSING", "no token was shown"))?;
        let digest = token.parse::<AccessToken>()?.secret.digest().to_string();
        let known: Option<Stored<AccessRecord>> =
            self.state().get(&StateKey::Access(digest)).await.map_err(state_error)?;
        let known = known.ok_or_else(|| refuse("TOKEN_REFUSED", "the cluster does not know this token"))?;
        Ok(known.record.role)
    }

    /// Who may use the admin API.
    pub async fn list_access(&self) -> Result<Vec<Access>, Error> {
        let known = self.state().access().await.map_err(state_error)?;
        let access = known.into_values().map(|stored| {
            let AccessRecord { name, role, created_unix_ms } = stored.record;
            Access { name, role, created_unix_ms }
        });
        Ok(access.collect())
    }

    /// Lets somebody use the admin API.
    pub async fn create_access(
        &self,
        create: AccessCreate,
        authority: Fingerprint,
    ) -> Result<AccessCreated, Error> {
        validate_name("access", &create.name)?;
        let token = AccessToken { authority, secret: Secret::random() };
        let digest = token.secret.digest().to_string();
        let record = AccessRecord { name: create.name, role: create.role, created_unix_ms: unix_ms() };
        self.state().give_access(&digest, &record).await.map_err(state_error)?;
        Ok(AccessCreated { token: token.to_string() })
    }

    /// Takes somebody's access back.
    pub async fn delete_access(&self, name: &str) -> Result<(), Error> {
        if self.state().take_access_back(name).await.map_err(state_error)? {
            return Ok(());
        }
        Err(access_not_found(name))
    }

    /// What lets servers join.
    pub async fn list_joins(&self) -> Result<Vec<JoinTokenStatus>, Error> {
        let known = self.state().joins().await.map_err(state_error)?;
        let each = known.into_iter().map(|(digest, stored)| JoinTokenStatus {
            id: digest.chars().take(JOIN_ID_DIGITS).collect(),
            created_unix_ms: stored.record.created_unix_ms,
            expires_unix_ms: stored.record.expires_unix_ms,
        });
        Ok(each.collect())
    }

    /// Lets nobody join any more with the token of this number.
    pub async fn delete_join(&self, id: &str) -> Result<(), Error> {
        let known = self.state().joins().await.map_err(state_error)?;
        let digest = find_join(id, known.into_keys())?;
        self.state().remove(&StateKey::Join(digest)).await.map_err(state_error)
    }
}

/// The error that nobody of this name has access.
pub fn access_not_found(name: &str) -> Error {
    Error::new(
        "ACCESS_NOT_FOUND",
        format!("nobody called {name:?} has access"),
        "no token was made for this name",
        "list who has access with `spandrel access list`",
    )
}

/// The one join token whose number begins like this. Errors: `JOIN_TOKEN_NOT_FOUND`.
pub fn find_join(id: &str, numbers: impl IntoIterator<Item = String>) -> Result<String, Error> {
    let mut named = numbers.into_iter().filter(|number| !id.is_empty() && number.starts_with(id));
    match (named.next(), named.next()) {
        (Some(number), None) => Ok(number),
        (first, _) => Err(Error::new(
            "JOIN_TOKEN_NOT_FOUND",
            format!("there is no join token {id:?}"),
            if first.is_some() { "several begin so" } else { "none begins so; it may have expired" },
            "list them with `spandrel cluster join-token list`",
        )),
    }
}

//! The platform whose TCP connections are encrypted.

use std::future::Future;
use std::rc::Rc;

use spandrel_platform::{
    Address, BufferPool, Connection, DriveError, Instant, LinkError, Listener, Platform, TaskHandle, UnixTime,
};

use crate::connection::TlsConnection;
use crate::session::{Session, explain};
use crate::settings::TlsSettings;

/// A platform, with TLS where it is to be. Cheap to clone.
#[derive(Clone)]
pub struct TlsPlatform<P: Platform> {
    below: P,
    /// None where nothing is encrypted, and nobody but this machine is spoken to.
    settings: Option<Rc<TlsSettings>>,
}

impl<P: Platform> TlsPlatform<P> {
    /// The platform `below`, with TLS as `settings` say; without them everything stays as it is below, and TCP stays
    /// within the machine.
    pub fn new(below: P, settings: Option<TlsSettings>) -> Self {
        Self { below, settings: settings.map(Rc::new) }
    }

    /// What is below.
    pub fn below(&self) -> &P {
        &self.below
    }

    /// Refuses an address at which others could read what is not encrypted.
    fn check_plain(address: &Address) -> Result<(), LinkError> {
        match address {
            Address::Tcp(tcp) if !tcp.ip().is_loopback() => Err(LinkError::Other(format!(
                "{address}: without TLS only this machine itself is spoken to, over loopback addresses"
            ))),
            _ => Ok(()),
        }
    }
}

impl<P: Platform> Platform for TlsPlatform<P> {
    type Drive = P::Drive;
    type Connection = TlsConnection<P::Connection>;
    type Listener = TlsListener<P>;
    type Detached = P::Detached;

    fn now(&self) -> Instant {
        self.below.now()
    }

    fn unix_time(&self) -> UnixTime {
        self.below.unix_time()
    }

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + 'static {
        self.below.sleep_until(deadline)
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) -> TaskHandle {
        self.below.spawn(task)
    }

    fn random_u64(&self) -> u64 {
        self.below.random_u64()
    }

    fn buffers(&self) -> &BufferPool {
        self.below.buffers()
    }

    async fn open_drive(&self, location: &str) -> Result<P::Drive, DriveError> {
        self.below.open_drive(location).await
    }

    async fn connect(&self, address: &Address) -> Result<Self::Connection, LinkError> {
        let (Some(settings), Address::Tcp(_)) = (&self.settings, address) else {
            Self::check_plain(address)?;
            return self.below.connect(address).await.map(TlsConnection::Plain);
        };
        let connection = self.below.connect(address).await?;
        if connection.is_within_process() {
            return Ok(TlsConnection::Plain(connection));
        }
        let session = Session::client(settings).map_err(|error| LinkError::Other(explain(&error)))?;
        Ok(TlsConnection::secured(connection, session, Rc::clone(settings), self.buffers().clone()))
    }

    fn listen(&self, address: &Address) -> Result<TlsListener<P>, LinkError> {
        let settings = self.settings.as_ref().filter(|settings| settings.secured.contains(address));
        match (&self.settings, address) {
            // An address that was forgotten among those that are secured must not be found unencrypted.
            (Some(_), Address::Tcp(_)) if settings.is_none() => {
                return Err(LinkError::Other(format!(
                    "{address}: it is not one of those to be listened at with TLS"
                )));
            }
            _ if settings.is_none() => Self::check_plain(address)?,
            _ => {}
        }
        let listener = self.below.listen(address)?;
        Ok(TlsListener { listener, settings: settings.cloned(), buffers: self.buffers().clone() })
    }

    fn detach(&self, connection: &Self::Connection) -> Option<P::Detached> {
        match connection {
            TlsConnection::Plain(connection) => self.below.detach(connection),
            TlsConnection::Secured(_) => None,
        }
    }

    fn attach(&self, detached: P::Detached) -> Result<Self::Connection, LinkError> {
        self.below.attach(detached).map(TlsConnection::Plain)
    }
}

/// A place where connections arrive, encrypted or not.
pub struct TlsListener<P: Platform> {
    listener: P::Listener,
    settings: Option<Rc<TlsSettings>>,
    buffers: BufferPool,
}

impl<P: Platform> Listener for TlsListener<P> {
    type Connection = TlsConnection<P::Connection>;

    async fn accept(&self) -> Result<Self::Connection, LinkError> {
        let connection = self.listener.accept().await?;
        let settings = self.settings.as_ref().filter(|_| !connection.is_within_process());
        let Some(settings) = settings else { return Ok(TlsConnection::Plain(connection)) };
        let session = Session::server(settings).map_err(|error| LinkError::Other(explain(&error)))?;
        Ok(TlsConnection::secured(connection, session, Rc::clone(settings), self.buffers.clone()))
    }

    fn address(&self) -> Address {
        self.listener.address()
    }
}

#[cfg(test)]
#[path = "platform_tests.rs"]
mod tests;

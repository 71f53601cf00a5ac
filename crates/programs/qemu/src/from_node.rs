//! The virtual machines of a node, for the node's own thread, which runs no tasks of the program's runtime: what is asked
//! there is done here, and the answer wakes the thread.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;

use futures_channel::{mpsc, oneshot};
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _, LocalBoxFuture, ready};
use spandrel_cluster::VmHost;
use spandrel_shared::{Error, NodeId, VmId};
use spandrel_vm::{Hypervisor, Instance, VmSpec};
use tokio::io::AsyncWrite;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::qemu::Qemu;

/// A stream to another node, behind which a guest is awaited.
pub type Outgoing = Box<dyn AsyncWrite + Unpin + Send>;

/// Opens such streams.
pub type OpenOutgoing =
    Arc<dyn Fn(NodeId, VmId) -> BoxFuture<'static, Result<Outgoing, Error>> + Send + Sync>;

/// [`Qemu`] for a node.
pub struct QemuOfNode {
    qemu: Arc<Qemu>,
    runtime: Handle,
    open_outgoing: OpenOutgoing,
    changes: RefCell<mpsc::UnboundedReceiver<()>>,
}

impl QemuOfNode {
    /// What `qemu` has, whose tasks run in `runtime`, among nodes that `open_outgoing` reaches.
    pub fn new(qemu: Arc<Qemu>, runtime: Handle, open_outgoing: OpenOutgoing) -> Self {
        let changes = RefCell::new(qemu.listen());
        Self { qemu, runtime, open_outgoing, changes }
    }

    /// Has something done in the program's runtime. None if that ends meanwhile.
    fn ask<T: Send + 'static>(
        &self,
        done: impl Future<Output = T> + Send + 'static,
    ) -> LocalBoxFuture<'static, Option<T>> {
        let (sender, receiver) = oneshot::channel();
        self.runtime.spawn(async move {
            // Whoever asked may have left.
            let _ = sender.send(done.await);
        });
        receiver.map(Result::ok).boxed_local()
    }
}

/// A task that ends when nobody waits for it any more.
struct EndOnDrop<T>(JoinHandle<T>);

impl<T> Drop for EndOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The error that the program ends.
fn ends() -> Error {
    Error::new(
        "NODE_STOPPING",
        "nothing is done about virtual machines any more",
        "the program ends",
        "start it again",
    )
}

impl Hypervisor for QemuOfNode {
    fn host(&self) -> VmHost {
        self.qemu.host()
    }

    fn instances(&self) -> LocalBoxFuture<'_, BTreeMap<VmId, Instance>> {
        ready(self.qemu.instances()).boxed_local()
    }

    fn start(&self, spec: VmSpec) -> LocalBoxFuture<'_, Result<(), Error>> {
        let qemu = Arc::clone(&self.qemu);
        let started = self.ask(async move { qemu.start(spec).await });
        async move { started.await.unwrap_or_else(|| Err(ends())) }.boxed_local()
    }

    fn send(&self, vm: VmId, to: NodeId) -> LocalBoxFuture<'_, Result<(), Error>> {
        let (qemu, opening) = (Arc::clone(&self.qemu), (self.open_outgoing)(to, vm));
        let sending = self.runtime.spawn(async move { qemu.send(vm, opening.await?).await });
        // Whoever does not wait for it any more does not want it.
        let sending = EndOnDrop(sending);
        async move {
            let mut sending = sending;
            (&mut sending.0).await.unwrap_or_else(|_| Err(ends()))
        }
        .boxed_local()
    }

    fn resume(&self, vm: VmId) -> LocalBoxFuture<'_, Result<(), Error>> {
        let qemu = Arc::clone(&self.qemu);
        let resumed = self.ask(async move { qemu.resume(vm).await });
        async move { resumed.await.unwrap_or_else(|| Err(ends())) }.boxed_local()
    }

    fn shut_down(&self, vm: VmId) -> LocalBoxFuture<'_, ()> {
        let qemu = Arc::clone(&self.qemu);
        let asked = self.ask(async move { qemu.shut_down(vm).await });
        async move { asked.await.unwrap_or_default() }.boxed_local()
    }

    fn end(&self, vm: VmId) -> LocalBoxFuture<'_, Result<(), Error>> {
        let qemu = Arc::clone(&self.qemu);
        let ended = self.ask(async move { qemu.end(vm).await });
        async move { ended.await.unwrap_or_else(|| Err(ends())) }.boxed_local()
    }

    fn changed(&self) -> LocalBoxFuture<'_, ()> {
        poll_fn(|context| self.changes.borrow_mut().poll_next_unpin(context).map(|_| ())).boxed_local()
    }
}

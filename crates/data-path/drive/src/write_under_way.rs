//! A write that was begun: completes when it is durable.
//!
//! Mostly it is no more than the receiving end of what the commit task will say, so that whoever has several under way at
//! once needs little memory for each.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use spandrel_platform::Platform;
use spandrel_platform::sync::OneshotReceiver;

use crate::error::StoreError;
use crate::store::DriveStore;

/// Completes when a write is durable, or was refused, or its store has failed. The write goes on if this is dropped, once it is in line.
pub struct WriteUnderWay<P: Platform> {
    stage: Stage<P>,
}

enum Stage<P: Platform> {
    InLine {
        durable: OneshotReceiver<Result<(), StoreError>>,
        store: DriveStore<P>,
    },
    /// It waits for others that change the same blocks first.
    InTurn(Pin<Box<dyn Future<Output = Result<(), StoreError>>>>),
    Refused(StoreError),
}

impl<P: Platform> WriteUnderWay<P> {
    pub(crate) fn in_line(durable: OneshotReceiver<Result<(), StoreError>>, store: DriveStore<P>) -> Self {
        Self { stage: Stage::InLine { durable, store } }
    }

    pub(crate) fn in_turn(write: impl Future<Output = Result<(), StoreError>> + 'static) -> Self {
        Self { stage: Stage::InTurn(Box::pin(write)) }
    }

    pub(crate) fn refused(error: StoreError) -> Self {
        Self { stage: Stage::Refused(error) }
    }
}

impl<P: Platform> Future for WriteUnderWay<P> {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.stage {
            Stage::InLine { durable, store } => {
                let told = ready!(Pin::new(durable).poll(context));
                Poll::Ready(told.unwrap_or_else(|| Err(store.stopped())))
            }
            Stage::InTurn(write) => write.as_mut().poll(context),
            Stage::Refused(error) => Poll::Ready(Err(error.clone())),
        }
    }
}

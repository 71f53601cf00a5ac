//! Who the members of etcd are, and changes of that.
//!
//! A new member begins as a learner: it gets the data and has no vote, so that one which never comes up costs nobody
//! the majority. etcd lets one learner be there at a time.

use std::collections::BTreeSet;

use etcd_client::{Member as EtcdMember, MemberAddOptions};
use spandrel_cluster::store::{StoreError, StoreErrorKind};

use crate::EtcdState;
use crate::failure::{NO_LEARNER, NO_MEMBER, done_before};
use crate::members::Member as Asked;

/// A member of etcd, as etcd knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberDescription {
    /// Its number, which etcd has given it.
    pub id: u64,
    /// Its name; empty until it has run for the first time.
    pub name: String,
    /// Where it answers other members.
    pub peer_urls: Vec<String>,
    /// Where it answers clients; none until it has run for the first time.
    pub client_urls: Vec<String>,
    /// It has no vote, and answers no clients.
    pub is_learner: bool,
}

impl From<&EtcdMember> for MemberDescription {
    fn from(member: &EtcdMember) -> Self {
        Self {
            id: member.id(),
            name: member.name().to_owned(),
            peer_urls: member.peer_urls().to_vec(),
            client_urls: member.client_urls().to_vec(),
            is_learner: member.is_learner(),
        }
    }
}

/// Where the members with a vote answer clients, in the order in which they had better be tried: after each comes another
/// member, at another of its addresses if it has several. So one that is silent is not tried again at once, nor the same
/// network if it was that which failed.
pub fn client_endpoints(members: &[MemberDescription]) -> Vec<String> {
    let voting = members.iter().filter(|member| !member.is_learner);
    let mut of_members: Vec<Vec<String>> = voting.map(|member| member.client_urls.clone()).collect();
    of_members.iter_mut().for_each(|urls| urls.sort());
    of_members.sort();
    let rounds = of_members.iter().map(Vec::len).max().unwrap_or(0);
    let in_round = |round: usize| {
        let with_one_more = of_members.iter().enumerate().filter(move |(_, urls)| round < urls.len());
        with_one_more.map(move |(place, urls)| urls[(place + round) % urls.len()].clone())
    };
    (0..rounds).flat_map(in_round).collect()
}

impl EtcdState {
    /// The members, as the one that is asked knows them.
    pub async fn list_members(&self) -> Result<Vec<MemberDescription>, StoreError> {
        let members = self.members();
        let list = |member: Asked| async move { member.cluster().member_list().await };
        let work = async move {
            Ok(descriptions(members.repeat(StoreErrorKind::Unavailable, list).await?.members()))
        };
        self.call(StoreErrorKind::Unavailable, work).await
    }

    /// The number of the member that leads, as the one that is asked knows it; none during an election.
    pub async fn leader(&self) -> Result<Option<u64>, StoreError> {
        let members = self.members();
        let status = |member: Asked| async move { member.maintenance().status().await };
        let work = async move {
            let leader = members.repeat(StoreErrorKind::Unavailable, status).await?.leader();
            Ok(Some(leader).filter(|leader| *leader != 0))
        };
        self.call(StoreErrorKind::Unavailable, work).await
    }

    /// The numbers of the members that answer, within a second, and follow a leader or lead.
    pub async fn answering_members(&self) -> Result<BTreeSet<u64>, StoreError> {
        let members = self.members();
        self.call(StoreErrorKind::Unavailable, async move { Ok(members.answering().await) }).await
    }

    /// Adds a member that answers others at `peer_urls`, as a learner. All members, the new one included: it has the
    /// only empty name among them.
    ///
    /// Of kind [`StoreErrorKind::Invalid`] if there is a learner already, or a member at one of these.
    pub async fn add_learner(&self, peer_urls: &[String]) -> Result<Vec<MemberDescription>, StoreError> {
        let (members, urls) = (self.members(), peer_urls.to_vec());
        let add = move |member: Asked| {
            let options = MemberAddOptions::new().with_is_learner();
            let urls = urls.clone();
            async move { member.cluster().member_add(urls, Some(options)).await }
        };
        let work = async move { Ok(descriptions(members.change(add).await?.member_list())) };
        self.call(StoreErrorKind::Unknown, work).await
    }

    /// Gives a learner a vote. Of kind [`StoreErrorKind::Invalid`] as long as it lags behind, or if there is none.
    pub async fn promote_member(&self, id: u64) -> Result<(), StoreError> {
        let members = self.members();
        let promote = move |member: Asked| async move {
            done_before(member.cluster().member_promote(id).await, NO_LEARNER)
        };
        let work = async move { members.repeat(StoreErrorKind::Unknown, promote).await };
        self.call(StoreErrorKind::Unknown, work).await
    }

    /// Removes a member, if it is one: its process ends by itself, and can never come back. Of kind
    /// [`StoreErrorKind::Unavailable`] as long as too few of those that would be left run.
    pub async fn remove_member(&self, id: u64) -> Result<(), StoreError> {
        let members = self.members();
        let remove = move |member: Asked| async move {
            done_before(member.cluster().member_remove(id).await, NO_MEMBER)
        };
        let work = async move { members.repeat(StoreErrorKind::Unknown, remove).await };
        self.call(StoreErrorKind::Unknown, work).await
    }
}

fn descriptions(members: &[EtcdMember]) -> Vec<MemberDescription> {
    members.iter().map(MemberDescription::from).collect()
}

#[cfg(test)]
#[path = "membership_tests.rs"]
mod tests;

//! The fan-out of a change for very many subscribers of a shard, in slices.
//!
//! A mark takes a fraction of a microsecond, but half a million of them would keep the thread from its
//! streams for a tenth of a second, and a change for few would wait behind them. Between two slices the
//! thread serves its streams, and the shard tells changes for few.
//!
//! Each subscriber still sees the changes in their order: before it is marked with a later change, or
//! anything else is done for it, it is told those that have not come to it yet.

use std::collections::VecDeque;

use actix::fut::ActorFutureExt;
use actix::{AsyncContext, Context, WrapFuture};

use super::marks::MarkCounts;
use super::{Member, Publisher};
use crate::messages::FanOut;
use crate::metrics::Limit;
use crate::outbox::{AudienceHashes, Outbox};
use crate::runtime::ForMany;

/// The subscribers that are marked before the thread serves its streams: a few milliseconds. A change for no
/// more of them is told at once.
const SLICE: usize = 16_384;

/// The subscribers of a shard up to which a change is one for few, whose readers have their turn before
/// others.
const FEW_MAX: usize = 256;

/// The most changes that are told in slices at a time. The oldest is told to its end when another one comes.
const UNFINISHED_MAX: usize = 16;

/// The changes that have not come to all their subscribers yet.
pub(super) struct Slices {
    unfinished: VecDeque<SlicedFanOut>,
    /// The most subscribers of a slice.
    pub(super) len: usize,
    /// True while the next slice waits for its turn.
    is_scheduled: bool,
}

impl Default for Slices {
    fn default() -> Slices {
        Slices {
            unfinished: VecDeque::new(),
            len: SLICE,
            is_scheduled: false,
        }
    }
}

/// A change that is told in slices.
struct SlicedFanOut {
    /// Answers the publisher when it is dropped.
    fan_out: FanOut,
    /// The hashes of the list for each audience, as of this change.
    shown: Option<AudienceHashes>,
    /// The subscribers of the time of the change, from the end on. One that came later has its state.
    left: Vec<Member>,
    /// For each member, true if it was told.
    told: Vec<bool>,
}

impl SlicedFanOut {
    /// Returns true for the first time that a member is asked for.
    fn take(&mut self, member: Member) -> bool {
        match self.told.get_mut(member) {
            Some(told) => !std::mem::replace(told, true),
            None => false,
        }
    }
}

impl Publisher {
    /// Tells a change to its subscribers: at once if they are few, else in slices.
    pub(super) fn fan_out(&mut self, mut fan_out: FanOut) {
        self.separate(&mut fan_out);
        if let Some((kind, ..)) = fan_out.list {
            self.count_unasked(kind);
        }
        let wanting = self.count_wanting(&fan_out);
        if wanting > self.slices.len {
            return self.begin_slices(fan_out);
        }
        if !self.slices.unfinished.is_empty() {
            for member in self.wanting(&fan_out) {
                self.catch_up_member(member);
            }
        }
        // Dropped before the change is, which answers the publisher: that wakes no reader.
        let _many = (wanting > FEW_MAX).then(ForMany::begin);
        self.tell_all(&fan_out);
    }

    /// The number of subscribers that want a change. One that wants both its notice and its list counts
    /// twice.
    fn count_wanting(&self, fan_out: &FanOut) -> usize {
        let noticed = match &fan_out.notice {
            Some(notice) => self.table.subscribers(&notice.uri).len() + self.watching.len(),
            None => 0,
        };
        let listed = fan_out.list.map(|(kind, ..)| self.lists[kind.index()].len());
        noticed + listed.unwrap_or_default()
    }

    /// The subscribers that want a change.
    fn wanting(&self, fan_out: &FanOut) -> Vec<Member> {
        let mut members = Vec::with_capacity(self.count_wanting(fan_out));
        if let Some((kind, ..)) = fan_out.list {
            members.extend(&self.lists[kind.index()]);
        }
        if let Some(notice) = &fan_out.notice {
            members.extend(&self.watching);
            members.extend(self.table.subscribed_members(&notice.uri));
        }
        members
    }

    fn begin_slices(&mut self, fan_out: FanOut) {
        if self.slices.unfinished.len() >= UNFINISHED_MAX {
            self.metrics.count_limit(Limit::SlicedChanges);
            while self.slices.unfinished.len() >= UNFINISHED_MAX {
                self.tell_slice();
            }
        }
        let left = self.wanting(&fan_out);
        let places = match left.iter().max() {
            Some(last) => last + 1,
            None => 0,
        };
        let shown = fan_out
            .list
            .and_then(|(kind, ..)| self.shown[kind.index()].clone());
        self.slices.unfinished.push_back(SlicedFanOut {
            fan_out,
            shown,
            left,
            told: vec![false; places],
        });
    }

    /// Has the next slice told after the streams of the thread had their turn, if one is left.
    pub(super) fn schedule_slice(&mut self, ctx: &mut Context<Self>) {
        if self.slices.unfinished.is_empty() || self.slices.is_scheduled {
            return;
        }
        self.slices.is_scheduled = true;
        // Not a message: this actor takes all messages before it lets the streams of its thread run.
        let turn = tokio::task::yield_now().into_actor(self);
        ctx.spawn(turn.map(|(), publisher, ctx| {
            publisher.slices.is_scheduled = false;
            publisher.tell_slice();
            publisher.schedule_slice(ctx);
        }));
    }

    /// Tells the next slice of the oldest change.
    pub(super) fn tell_slice(&mut self) {
        let Some(mut change) = self.slices.unfinished.pop_front() else {
            return;
        };
        let _many = ForMany::begin();
        let mut count = MarkCounts::now();
        let rest = change.left.len().saturating_sub(self.slices.len);
        for member in change.left.split_off(rest) {
            self.tell_member(&mut change, member, &mut count);
        }
        self.report(&change.fan_out, &count);
        if !change.left.is_empty() {
            self.slices.unfinished.push_front(change);
        }
    }

    /// Tells all changes to all their subscribers.
    pub(super) fn finish_slices(&mut self) {
        while !self.slices.unfinished.is_empty() {
            self.tell_slice();
        }
    }

    /// Tells a subscriber the changes that have not come to it yet, before something else is done for it.
    pub(super) fn catch_up(&mut self, outbox: &Outbox) {
        if !self.slices.unfinished.is_empty()
            && let Some(member) = self.member(outbox)
        {
            self.catch_up_member(member);
        }
    }

    fn catch_up_member(&mut self, member: Member) {
        let mut unfinished = std::mem::take(&mut self.slices.unfinished);
        for change in &mut unfinished {
            let mut count = MarkCounts::now();
            self.tell_member(change, member, &mut count);
            self.report(&change.fan_out, &count);
        }
        self.slices.unfinished = unfinished;
    }

    /// Tells one subscriber the parts of a change that it wants, unless it was told.
    fn tell_member(&self, change: &mut SlicedFanOut, member: Member, count: &mut MarkCounts) {
        if !change.take(member) {
            return;
        }
        let Some(outbox) = self.table.get(member) else {
            return;
        };
        if let Some(notice) = &change.fan_out.notice {
            // The slot may have changed since the change was made, so it is looked up.
            if let Some(slot) = outbox.with(|set| set.find(&notice.uri)) {
                self.mark_slot(outbox, slot, notice, count);
            }
            if self.watching.contains(&member) {
                self.mark_watching(outbox, notice, count);
            }
        }
        if let Some(list) = change.fan_out.list {
            self.mark_listed(outbox, list, change.shown.as_deref(), count);
        }
    }
}

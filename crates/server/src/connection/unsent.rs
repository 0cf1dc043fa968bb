//! Reservations of answers whose last bytes are in a buffer of the connection and not yet in the
//! kernel.
//!
//! The writer drops a body as soon as it has copied the body's last piece. The connection driven at
//! that moment keeps the body's reservation until its buffer is empty, or until it ends.

use std::cell::RefCell;
use std::rc::Rc;

use hotrow_admission::byte_budget::Reservation;

use crate::guard::phase::Activity;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Activity>>> = const { RefCell::new(None) };
}

/// Runs `work`, which drives the connection of this activity.
pub(crate) fn while_driven<T>(activity: &Rc<Activity>, work: impl FnOnce() -> T) -> T {
    /// Restores the previous value, also after a panic.
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.with_borrow_mut(|current| *current = None);
        }
    }
    CURRENT.with_borrow_mut(|current| *current = Some(activity.clone()));
    let _restore = Restore;
    work()
}

/// Makes the current connection keep the reservation until its bytes are sent; without one the
/// reservation ends here.
pub(crate) fn keep(reservation: Reservation) {
    // An error means that the thread ends, and every connection with it.
    let _ = CURRENT.try_with(|current| {
        if let Some(activity) = &*current.borrow() {
            activity.keep_until_sent(reservation);
        }
    });
}

#[cfg(test)]
mod tests {
    use hotrow_admission::byte_budget::ByteBudget;
    use hotrow_measure::clock::Nanos;

    use super::*;

    #[test]
    fn a_reservation_stays_with_its_connection_until_the_bytes_are_sent() {
        let budget = ByteBudget::new(100);
        let reserve = || budget.reserve(10).expect("room");
        keep(reserve());
        assert_eq!(budget.used_bytes(), 0, "no connection is driven");
        let activity = Rc::new(Activity::new(Nanos(1)));
        while_driven(&activity, || [(); 2].map(|()| keep(reserve())));
        assert_eq!(budget.used_bytes(), 20);
        activity.all_sent();
        assert_eq!(budget.used_bytes(), 0);
        while_driven(&activity, || keep(reserve()));
        drop(activity);
        assert_eq!(budget.used_bytes(), 0, "the connection has ended");
    }
}

use super::*;

/// The clock of a machine in `zone`, not shifted.
fn clock(zone: &str) -> Clock {
    let zone = TimeZone::get(zone).expect("a known zone");
    Clock { zone, offset: SignedDuration::ZERO }
}

fn at(utc: &str) -> Timestamp {
    utc.parse().expect("a timestamp")
}

/// Asserts the date and its remaining time at a moment of UTC.
#[track_caller]
fn assert_today(zone: &str, utc: &str, date: (i16, i8, i8), max_age_s: i64) {
    let today = clock(zone).today_at(at(utc));
    let got = (today.date.year, today.date.month, today.date.day);
    assert_eq!((got, today.max_age_s), (date, max_age_s), "{zone} at {utc}");
    assert_eq!(today.expires, at(utc) + SignedDuration::from_secs(max_age_s), "{zone} at {utc}");
}

const HOUR_S: i64 = 3600;

#[test]
fn an_answer_is_kept_to_the_end_of_the_day_but_for_a_second() {
    assert_today("UTC", "2026-11-21T00:00:00Z", (2026, 11, 21), 24 * HOUR_S - 1);
    assert_today("UTC", "2026-11-21T12:00:00Z", (2026, 11, 21), 12 * HOUR_S - 1);
    assert_today("UTC", "2026-11-21T12:00:00.001Z", (2026, 11, 21), 12 * HOUR_S - 2);
    assert_today("UTC", "2026-11-21T23:59:57.5Z", (2026, 11, 21), 1);
    for late in ["23:59:58.5", "23:59:59", "23:59:59.999", "23:59:59.999999999"] {
        assert_today("UTC", &format!("2026-11-21T{late}Z"), (2026, 11, 21), 0);
    }
}

/// A cache may count whole seconds from the arrival, as nginx does.
#[test]
fn a_cache_that_rounds_is_right_a_second_after_midnight() {
    let midnight = at("2026-11-22T00:00:00Z");
    for before_ms in (1..10_000).step_by(7) {
        for way_ms in [0, 1, 499, 999, 1500, 1999] {
            let made = midnight - SignedDuration::from_millis(before_ms);
            let today = clock("UTC").today_at(made);
            let arrived_s = (made + SignedDuration::from_millis(way_ms)).as_second();
            let last_second_kept = arrived_s + today.max_age_s;
            // A response with a maximum age of 0 is never cached.
            assert!(
                today.max_age_s == 0 || last_second_kept < midnight.as_second() + 1,
                "{before_ms} ms before midnight, {way_ms} ms on the way: kept to {last_second_kept}"
            );
        }
    }
}

#[test]
fn dates_are_local() {
    assert_today("Europe/Berlin", "2026-11-21T23:00:00Z", (2026, 11, 22), 24 * HOUR_S - 1);
    assert_today("Asia/Kolkata", "2026-11-21T18:29:00Z", (2026, 11, 21), 59);
    assert_today("Pacific/Kiritimati", "2026-11-21T10:00:00Z", (2026, 11, 22), 24 * HOUR_S - 1);
}

#[test]
fn leap_days_are_days() {
    assert_today("UTC", "2028-02-28T23:00:00Z", (2028, 2, 28), HOUR_S - 1);
    assert_today("UTC", "2028-02-29T23:00:00Z", (2028, 2, 29), HOUR_S - 1);
    assert_today("UTC", "2028-03-01T00:00:00Z", (2028, 3, 1), 24 * HOUR_S - 1);
    assert_today("UTC", "2027-02-28T23:59:00Z", (2027, 2, 28), 59);
    assert_today("UTC", "2100-03-01T00:00:00Z", (2100, 3, 1), 24 * HOUR_S - 1);
}

#[test]
fn days_of_23_and_of_25_hours_end_when_they_do() {
    // Forward at two o'clock on 2026-03-29, back at three o'clock on 2026-10-25.
    assert_today("Europe/Berlin", "2026-03-28T23:00:00Z", (2026, 3, 29), 23 * HOUR_S - 1);
    assert_today("Europe/Berlin", "2026-10-24T22:00:00Z", (2026, 10, 25), 25 * HOUR_S - 1);
    // Between the two hours from two to three o'clock.
    assert_today("Europe/Berlin", "2026-10-25T01:00:00Z", (2026, 10, 25), 22 * HOUR_S - 1);
}

#[test]
fn a_day_that_begins_at_one_o_clock_begins_then() {
    // São Paulo, 2018-11-04: the clock went from 00:00 to 01:00.
    assert_today("America/Sao_Paulo", "2018-11-04T02:30:00Z", (2018, 11, 3), HOUR_S / 2 - 1);
    assert_today("America/Sao_Paulo", "2018-11-04T03:00:00Z", (2018, 11, 4), 23 * HOUR_S - 1);
}

#[test]
fn a_date_that_goes_back_is_kept_until_then() {
    // St. John's, 2010-11-07: at 00:01 the clock went back to 23:01 of the day before.
    let zone = "America/St_Johns";
    assert_today(zone, "2010-11-07T02:00:00Z", (2010, 11, 6), HOUR_S / 2 - 1);
    assert_today(zone, "2010-11-07T02:30:30Z", (2010, 11, 7), 29);
    assert_today(zone, "2010-11-07T02:31:00Z", (2010, 11, 6), 59 * 60 - 1);
    assert_today(zone, "2010-11-07T03:30:00Z", (2010, 11, 7), 24 * HOUR_S - 1);
}

#[test]
fn a_day_that_a_zone_left_out_is_left_out() {
    // Samoa had no 2011-12-30.
    assert_today("Pacific/Apia", "2011-12-30T09:00:00Z", (2011, 12, 29), HOUR_S - 1);
    assert_today("Pacific/Apia", "2011-12-30T10:00:00Z", (2011, 12, 31), 24 * HOUR_S - 1);
}

#[test]
fn a_shifted_clock_shows_another_date_and_the_machines_expiry() {
    let now = at("2026-11-21T12:00:00Z");
    let shifted = |shift| Clock::shifted(TimeZone::UTC, now, shift);
    let tomorrow = shifted(Shift::Offset(24 * HOUR_S)).expect("a day").today_at(now);
    assert_eq!((tomorrow.date.day, tomorrow.max_age_s), (22, 12 * HOUR_S - 1));
    assert_eq!(tomorrow.expires, at("2026-11-21T23:59:59Z"));
    let late = shifted(Shift::At(Time::constant(23, 59, 50, 0))).expect("a time");
    let (before, after) = (late.today_at(now), late.today_at(now + SignedDuration::from_secs(10)));
    assert_eq!(
        (before.date.day, before.max_age_s, before.expires),
        (21, 9, at("2026-11-21T12:00:09Z"))
    );
    assert_eq!((after.date.day, after.max_age_s), (22, 24 * HOUR_S - 1));
    for wrong in [OFFSET_S_MAX + 1, -OFFSET_S_MAX - 1, i64::MIN] {
        let error = shifted(Shift::Offset(wrong)).expect_err("too far").to_string();
        assert!(error.contains(&wrong.to_string()), "{error}");
    }
}

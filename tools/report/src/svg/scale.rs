//! Mapping of values to an axis, and its ticks.

use crate::numbers;
use crate::plot::{Axis, Scale, Unit};

/// Positions of values on an axis, from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Mapping {
    /// Creates an axis with these ends; `None` if it cannot hold them or they are equal.
    pub(super) fn exact(scale: Scale, (low, high): (f64, f64)) -> Option<Self> {
        let (low, high) = (transformed(scale, low)?, transformed(scale, high)?);
        (high > low).then_some(Self { scale, low, high })
    }

    /// Returns a value's position; `None` if the axis cannot hold it.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        Some((transformed(self.scale, value)? - self.low) / (self.high - self.low))
    }

    /// Returns about `most` ticks at most, with labels.
    pub(super) fn ticks(&self, axis: &Axis, most: usize) -> Vec<(f64, String)> {
        let values = match self.scale {
            Scale::Linear => self.even(most),
            Scale::Log => self.powers(most),
            Scale::Nines => vec![0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999],
        };
        let ticks = values.into_iter().filter_map(|value| {
            let place = self.place(value).filter(|place| (-1e-9..=1.0 + 1e-9).contains(place))?;
            Some((place, name(axis.unit, value)))
        });
        ticks.collect()
    }

    /// Steps of 1, 2 or 5 times a power of ten.
    fn even(&self, most: usize) -> Vec<f64> {
        let rough = self.high / most.max(1) as f64;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = step.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power);
        let count = (self.high / step).floor().min(100.0) as u32;
        (0..=count).map(|i| f64::from(i) * step).collect()
    }

    /// Powers of ten, with 2 and 5 times them if there is room.
    fn powers(&self, most: usize) -> Vec<f64> {
        let decades = self.high - self.low;
        let factors: &[f64] = match most as f64 {
            most if decades * 3.0 <= most => &[1.0, 2.0, 5.0],
            most if decades * 2.0 <= most => &[1.0, 3.0],
            _ => &[1.0],
        };
        let exponents = self.low.floor() as i32..=self.high.ceil() as i32;
        exponents
            .flat_map(|exponent| factors.iter().map(move |factor| factor * 10_f64.powi(exponent)))
            .collect()
    }
}

fn transformed(scale: Scale, value: f64) -> Option<f64> {
    let placed = match scale {
        Scale::Linear => value,
        Scale::Log if value > 0.0 => value.log10(),
        Scale::Nines if (0.0..1.0).contains(&value) => -(1.0 - value).log10(),
        Scale::Log | Scale::Nines => return None,
    };
    placed.is_finite().then_some(placed)
}

fn name(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Number if value.fract() == 0.0 => numbers::grouped(value),
        Unit::Number => numbers::number(value),
        Unit::Seconds => format!("{value} s"),
        Unit::Share => {
            let text = format!("{:.4}", value * 100.0);
            format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
        }
        Unit::Micros => match value {
            _ if value == 0.0 => "0".to_owned(),
            _ if value >= 1e6 => format!("{} s", value / 1e6),
            _ if value >= 1e3 => format!("{} ms", value / 1e3),
            _ => format!("{value} µs"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(scale: Scale, unit: Unit, values: &[f64]) -> Vec<String> {
        let axis = Axis { name: String::new(), scale, unit };
        let mapping = Mapping::exact(scale, (values[0], values[1])).unwrap();
        mapping.ticks(&axis, 6).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn axes_name_round_values() {
        assert_eq!(
            names(Scale::Linear, Unit::Number, &[0.0, 2241.0]),
            ["0", "500", "1,000", "1,500", "2,000"]
        );
        assert_eq!(
            names(Scale::Log, Unit::Micros, &[90.0, 2e6]),
            ["100 µs", "1 ms", "10 ms", "100 ms", "1 s"]
        );
        assert_eq!(
            names(Scale::Nines, Unit::Share, &[0.0, 0.9995]),
            ["0 %", "50 %", "90 %", "99 %", "99.9 %"]
        );
        assert_eq!(
            names(Scale::Linear, Unit::Number, &[0.0, 1.0]),
            ["0", "0.200", "0.400", "0.600", "0.800", "1"]
        );
    }

    #[test]
    fn values_that_an_axis_cannot_hold_are_omitted() {
        for ends in [(0.0, 1.0), (1.0, f64::NAN), (1.0, f64::INFINITY), (1.0, 1.0)] {
            assert!(Mapping::exact(Scale::Log, ends).is_none(), "{ends:?}");
        }
        let mapping = Mapping::exact(Scale::Nines, (0.0, 0.5)).unwrap();
        assert_eq!((mapping.place(1.0), mapping.place(0.5)), (None, Some(1.0)));
    }
}

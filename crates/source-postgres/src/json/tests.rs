use super::*;

fn form(scalar: Scalar, value: &[u8]) -> String {
    let mut out = Vec::new();
    write_scalar(&mut out, scalar, value).unwrap();
    String::from_utf8(out).unwrap()
}

fn interval(micros: i64, days: i32, months: i32) -> String {
    let bytes = [&micros.to_be_bytes()[..], &days.to_be_bytes(), &months.to_be_bytes()].concat();
    form(Scalar::Interval, &bytes)
}

#[test]
fn times_have_the_forms_of_rfc_3339() {
    let stamp = |micros: i64| form(Scalar::TimestampTz, &micros.to_be_bytes());
    assert_eq!(stamp(0), "\"2000-01-01T00:00:00Z\"");
    assert_eq!(stamp(-1), "\"1999-12-31T23:59:59.999999Z\"");
    assert_eq!(stamp(i64::MAX), "\"infinity\"");
    assert_eq!(stamp(i64::MIN), "\"-infinity\"");
    let date = |days: i32| form(Scalar::Date, &days.to_be_bytes());
    assert_eq!(date(59), "\"2000-02-29\"");
    assert_eq!(date(-730_119), "\"0001-01-01\"");
    assert_eq!(date(-730_120), "\"0001-12-31 BC\"");
    assert_eq!(date(2_921_940), "\"10000-01-01\"");
    assert_eq!(
        form(Scalar::TimeTz, &[&0_i64.to_be_bytes()[..], &(-19_800_i32).to_be_bytes()].concat()),
        "\"00:00:00+05:30\""
    );
}

#[test]
fn intervals_keep_the_sign_of_each_part() {
    assert_eq!(interval(0, 0, 0), "\"PT0S\"");
    assert_eq!(interval(-1_500_000, 3, -14), "\"P-1Y-2M3DT-1.5S\"");
    assert_eq!(interval(3_600_000_000, 0, 0), "\"PT1H\"");
    assert_eq!(interval(i64::MAX, i32::MAX, i32::MAX), "\"infinity\"");
}

#[test]
fn ipv6_is_written_as_postgresql_writes_it() {
    let v6 = |text: &str| {
        let address: std::net::Ipv6Addr = text.parse().unwrap();
        form(Scalar::Inet, &[&[3, 128, 0, 16][..], &address.octets()].concat())
    };
    for text in ["::1", "::", "::ffff:1.2.3.4", "::1.2.3.4", "2001:db8::1:0:0:1", "1:2:3:4:5:6:7:8"]
    {
        assert_eq!(v6(text), format!("\"{text}\""));
    }
}

fn any_shape() -> impl proptest::strategy::Strategy<Value = Shape> {
    use proptest::prelude::*;
    const SCALARS: [Scalar; 10] = [
        Scalar::Numeric,
        Scalar::Text,
        Scalar::Jsonb,
        Scalar::Uuid,
        Scalar::TimestampTz,
        Scalar::Interval,
        Scalar::Inet,
        Scalar::Bit,
        Scalar::Bool,
        Scalar::Date,
    ];
    let scalar = prop::sample::select(SCALARS.to_vec()).prop_map(Shape::Scalar);
    scalar.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|s| Shape::Array(Box::new(s))),
            inner.clone().prop_map(|s| Shape::Range(Box::new(s))),
            inner.clone().prop_map(|s| Shape::Multirange(Box::new(s))),
            prop::collection::vec(inner.prop_map(|s| Field::new("f", 3, s)), 0..3)
                .prop_map(Shape::Composite),
        ]
    })
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        shape in any_shape(),
        bytes in proptest::collection::vec(0_u8..8, 0..80),
        more: Vec<u8>,
    ) {
        let _ = write(&mut Vec::new(), &shape, Some(&bytes));
        let _ = write(&mut Vec::new(), &shape, Some(&more));
    }
}

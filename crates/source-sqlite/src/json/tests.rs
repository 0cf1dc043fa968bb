use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

fn text(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_text(&mut out, bytes);
    out
}

fn value(value: ValueRef<'_>, blob: BlobForm) -> String {
    let mut out = Vec::new();
    write_value(&mut out, value, blob);
    String::from_utf8(out).unwrap()
}

#[test]
fn every_storage_class_has_a_form() {
    let form = |v| value(v, BlobForm::Base64);
    assert_eq!(form(ValueRef::Null), "null");
    assert_eq!(form(ValueRef::Integer(i64::MIN)), "-9223372036854775808");
    assert_eq!(form(ValueRef::Real(1.0)), "1.0");
    assert_eq!(form(ValueRef::Real(-0.0)), "-0.0");
    assert_eq!(form(ValueRef::Real(1e300)), "1e300");
    assert_eq!(form(ValueRef::Real(f64::INFINITY)), "\"Infinity\"");
    assert_eq!(form(ValueRef::Real(f64::NEG_INFINITY)), "\"-Infinity\"");
    assert_eq!(
        form(ValueRef::Text(b"a\0\"\\\n\x7f\xff\xc3")),
        "\"a\\u0000\\\"\\\\\\n\x7f\u{fffd}\u{fffd}\""
    );
    assert_eq!(form(ValueRef::Blob(b"")), "\"\"");
    assert_eq!(form(ValueRef::Blob(&[0, 255])), "\"AP8=\"");
    assert_eq!(value(ValueRef::Blob(&[0, 255]), BlobForm::Hex), "\"00ff\"");
    let uuid: Vec<u8> = (0..16).collect();
    assert_eq!(
        value(ValueRef::Blob(&uuid), BlobForm::Uuid),
        "\"00010203-0405-0607-0809-0a0b0c0d0e0f\""
    );
    assert_eq!(value(ValueRef::Blob(&[7]), BlobForm::Uuid), "\"Bw==\"");
}

proptest::proptest! {
    #[test]
    fn text_is_escaped_as_serde_json_does(t in "(\\PC|[\\x00-\\x1f\"\\\\\\x7f]){0,60}") {
        assert_eq!(text(t.as_bytes()), serde_json::to_vec(&t).unwrap());
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced(bytes: Vec<u8>) {
        assert_eq!(text(&bytes), serde_json::to_vec(&String::from_utf8_lossy(&bytes)).unwrap());
    }

    #[test]
    fn a_real_reads_back_and_stays_a_real(bits: u64) {
        let real = f64::from_bits(bits);
        if real.is_finite() {
            let form = value(ValueRef::Real(real), BlobForm::Base64);
            assert_eq!(form.parse::<f64>().unwrap().to_bits(), bits);
            assert!(form.contains(['.', 'e']));
            assert!(serde_json::from_str::<serde_json::Value>(&form).unwrap().is_f64());
        }
    }

    #[test]
    fn base64_reads_back(bytes: Vec<u8>) {
        let form = value(ValueRef::Blob(&bytes), BlobForm::Base64);
        assert_eq!(STANDARD.decode(form.trim_matches('"')).unwrap(), bytes);
    }
}

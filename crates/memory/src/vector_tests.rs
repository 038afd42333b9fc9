use super::*;

#[test]
fn a_vector_has_length_one_whatever_it_had() {
    for given in [[3.0, 4.0], [3e38, 3e38], [1e-45, 0.0], [-0.0, -7.0]] {
        let unit = unit(&given).unwrap();
        assert!((cosine(&unit, &unit) - 1.0).abs() < 1e-6, "{given:?} is {unit:?}");
    }
    assert_eq!(unit(&[3.0, 4.0]).unwrap(), [0.6, 0.8]);
}

#[test]
fn what_has_no_direction_is_refused() {
    assert_eq!(unit(&[0.0, -0.0]), Err(MemoryError::Zero));
    assert_eq!(unit(&[1.0, f32::NAN]), Err(MemoryError::NotFinite { at: 1 }));
    assert_eq!(unit(&[f32::NEG_INFINITY]), Err(MemoryError::NotFinite { at: 0 }));
    let most = LONGEST_VECTOR;
    assert_eq!(check_dimension(0), Err(MemoryError::Length { given: 0, most }));
    assert_eq!(check_dimension(most + 1), Err(MemoryError::Length { given: most + 1, most }));
    assert_eq!(check_dimension(most), Ok(()));
}

#[test]
fn what_is_stored_is_read() {
    let vector = [0.25, -1.0, f32::MIN_POSITIVE];
    assert_eq!(of_bytes(&to_bytes(&vector), 3).unwrap(), vector);
    for bytes in [&[0; 11][..], &[0; 13], &[0; 8], &[]] {
        assert!(matches!(of_bytes(bytes, 3), Err(Failure::Damaged(_))), "{bytes:?}");
    }
}

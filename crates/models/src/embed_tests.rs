use super::*;

fn read(data: &Value, texts: usize) -> Result<Vec<Vec<f32>>, String> {
    vectors(&json!({"data": data}), texts)
}

#[test]
fn vectors_come_in_the_order_of_their_texts() {
    let entry = |at: usize, numbers: Value| json!({"index": at, "embedding": numbers});
    let data = json!([entry(1, json!([3, 4.5])), entry(0, json!([1, 2]))]);
    assert_eq!(read(&data, 2).unwrap(), [[1.0, 2.0], [3.0, 4.5]]);
    let without = json!([{"embedding": [1]}, {"embedding": [2]}]);
    assert_eq!(read(&without, 2).unwrap(), [[1.0], [2.0]]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let one = |numbers: Value| json!([{"index": 0, "embedding": numbers}]);
    for (data, texts) in [
        (json!(null), 1),
        (json!([]), 1),
        (json!([{}, {}]), 1),
        (one(json!([])), 1),
        (one(json!("AAAA")), 1),
        (one(json!([1, null])), 1),
        (one(json!([1, "2"])), 1),
        (one(json!([1e300])), 1),
        (one(json!(vec![0; 8_193])), 1),
        (json!([{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]), 2),
        (json!([{"index": 0, "embedding": [1]}, {"index": 9, "embedding": [1]}]), 2),
        (json!([{"index": 0, "embedding": [1]}, {"index": 1, "embedding": [1, 2]}]), 2),
    ] {
        assert!(read(&data, texts).is_err(), "{data}");
    }
    assert_eq!(read(&one(json!(vec![0.5; 8_192])), 1).unwrap()[0].len(), 8_192);
}

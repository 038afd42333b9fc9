use tempfile::TempDir;
use tollgate_contract::id::MemoryId;

use super::*;
use crate::{
    record::{Limits, NewRecord},
    schema, write,
};

const MODEL: &str = "m";

struct Place {
    _folder: TempDir,
    connection: Connection,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let connection = schema::open(&folder.path().join("memory.db")).unwrap();
        Self { _folder: folder, connection }
    }

    /// Adds records whose vectors turn from one axis towards the other.
    fn add(&self, session: &str, numbers: std::ops::Range<u8>) {
        let record = |number: u8| NewRecord {
            id: id(session, number),
            text: format!("record {number}"),
            tags: Vec::new(),
            turn: 0,
            at_ms: 0,
        };
        let records: Vec<NewRecord> = numbers.clone().map(record).collect();
        write::add(&self.connection, session, &records, Limits::default()).unwrap();
        let vectors: Vec<(MemoryId, Vec<f32>)> =
            numbers.map(|number| (id(session, number), vec![1.0, f32::from(number)])).collect();
        write::set_vectors(&self.connection, MODEL, &vectors).unwrap();
    }

    fn scope(&self, session: &str) -> Scope {
        let sql = "SELECT number FROM sessions WHERE name = ?1";
        Scope::Session(self.connection.query_row(sql, [session], |row| row.get(0)).unwrap())
    }

    /// How many are found, and the texts of the first.
    fn find(&self, planes: &Planes, scope: Scope) -> Vec<String> {
        let question = (MODEL, &[1.0, 0.0][..]);
        let extent = Extent { records: 100, words: 200 };
        let near = find(&self.connection, planes, question, &[], (scope, &extent), 100).unwrap();
        let sql = "SELECT text FROM records WHERE place = ?1";
        let text = |one: &Ranked| self.connection.query_row(sql, [one.place], |row| row.get(0));
        near.iter().map(|one| text(one).unwrap()).collect()
    }
}

fn id(session: &str, number: u8) -> MemoryId {
    let first = session.bytes().next().unwrap();
    MemoryId::from_parts(1, [first, number, 0, 0, 0, 0, 0, 0, 0, 0])
}

#[test]
fn a_plane_follows_the_database() {
    let place = Place::new();
    let planes = Planes::new(usize::MAX);
    place.add("a", 0..50);
    let scope = place.scope("a");
    assert_eq!(place.find(&planes, scope).len(), 50);
    place.add("a", 50..60);
    assert_eq!(place.find(&planes, scope).len(), 60);
    // One that is gone is passed over, and so are many.
    assert!(write::forget_one(&place.connection, id("a", 0)).unwrap());
    assert_eq!(place.find(&planes, scope).first().unwrap(), "record 1");
    (1..40).for_each(|number| {
        assert!(write::forget_one(&place.connection, id("a", number)).unwrap());
    });
    assert_eq!(place.find(&planes, scope).len(), 20);
    assert_eq!(place.find(&planes, scope).first().unwrap(), "record 40");
    // A new vector replaces the old one.
    let turned = [(id("a", 59), vec![1.0, 0.0])];
    write::set_vectors(&place.connection, MODEL, &turned).unwrap();
    assert_eq!(place.find(&planes, scope).first().unwrap(), "record 59");
    assert_eq!(place.find(&planes, scope).len(), 20);
}

#[test]
fn a_forgotten_session_is_not_the_one_of_the_same_name() {
    let place = Place::new();
    let planes = Planes::new(usize::MAX);
    place.add("a", 0..5);
    let before = place.scope("a");
    assert_eq!(place.find(&planes, before).len(), 5);
    assert_eq!(write::forget(&place.connection, "a").unwrap(), 5);
    place.add("a", 7..8);
    assert_ne!(place.scope("a"), before);
    assert_eq!(place.find(&planes, place.scope("a")), ["record 7"]);
    assert_eq!(place.find(&planes, before), [""; 0]);
    assert_eq!(place.find(&planes, Scope::All), ["record 7"]);
}

#[test]
fn sessions_share_the_memory_and_the_least_used_goes() {
    let place = Place::new();
    for session in ["a", "b", "c"] {
        place.add(session, 0..100);
    }
    let alone = Planes::new(usize::MAX);
    assert_eq!(place.find(&alone, place.scope("a")).len(), 100);
    let one = alone.bytes();
    // Room for two.
    let planes = Planes::new(one * 5 / 2);
    for session in ["a", "b", "a", "c"] {
        assert_eq!(place.find(&planes, place.scope(session)).len(), 100);
        assert!(planes.bytes() <= one * 5 / 2);
    }
    let held = planes.held.lock().unwrap();
    let mut scopes: Vec<Scope> = held.planes.keys().map(|key| key.scope).collect();
    scopes.sort_by_key(|scope| scope.session());
    assert_eq!(scopes, [place.scope("a"), place.scope("c")]);
    drop(held);
    // For what does not fit by itself no plane is made, and it is found all the same.
    let none = Planes::new(one / 4);
    for scope in [place.scope("a"), Scope::All] {
        assert_eq!(place.find(&none, scope)[..20], place.find(&alone, scope)[..20]);
        assert!(none.held.lock().unwrap().planes.is_empty());
    }
}

#[test]
fn a_vector_of_another_length_on_disk_is_damage() {
    let place = Place::new();
    place.add("a", 0..3);
    place.connection.execute("UPDATE vectors SET vector = x'00' WHERE place > 0", []).unwrap();
    let planes = Planes::new(usize::MAX);
    let question = (MODEL, &[1.0, 0.0][..]);
    let extent = Extent { records: 3, words: 6 };
    let found = find(&place.connection, &planes, question, &[], (Scope::All, &extent), 10);
    assert!(matches!(found, Err(Failure::Damaged(_))), "{:?}", found.err());
}

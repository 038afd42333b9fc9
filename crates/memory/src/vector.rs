//! Vectors: what is accepted as one, how it is stored, and which model it is of.

use rusqlite::{Connection, OptionalExtension};

use crate::error::{Failure, MemoryError};

/// The longest vector, in numbers.
pub const LONGEST_VECTOR: usize = 16_384;

/// Passes if a vector may have this many numbers.
pub(crate) fn check_dimension(given: usize) -> Result<(), MemoryError> {
    let most = LONGEST_VECTOR;
    if (1..=most).contains(&given) { Ok(()) } else { Err(MemoryError::Length { given, most }) }
}

pub(crate) fn check_length(vector: &[f32]) -> Result<(), MemoryError> {
    check_dimension(vector.len())
}

/// The vector of length one in the same direction. Only directions are compared.
pub(crate) fn unit(vector: &[f32]) -> Result<Vec<f32>, MemoryError> {
    if let Some(at) = vector.iter().position(|number| !number.is_finite()) {
        return Err(MemoryError::NotFinite { at });
    }
    // In double precision neither the largest nor the smallest numbers are lost when they are squared.
    let length = vector.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
    if length == 0.0 {
        return Err(MemoryError::Zero);
    }
    Ok(vector.iter().map(|number| (f64::from(*number) / length) as f32).collect())
}

/// The cosine of the angle between two vectors of length one.
pub(crate) fn cosine(one: &[f32], other: &[f32]) -> f64 {
    one.iter().zip(other).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// As it is stored: single precision, least byte first.
pub(crate) fn to_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Reads what [`to_bytes`] wrote.
pub(crate) fn of_bytes(bytes: &[u8], dimension: usize) -> Result<Vec<f32>, Failure> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    if numbers.len() != dimension || !rest.is_empty() {
        let problem = format!("a vector has {} bytes, not {}", bytes.len(), dimension * 4);
        return Err(Failure::Damaged(problem));
    }
    Ok(numbers.iter().map(|number| f32::from_le_bytes(*number)).collect())
}

/// A model whose vectors are stored.
pub(crate) struct Model {
    pub(crate) number: i64,
    pub(crate) dimension: usize,
    /// How many vectors of it there are.
    pub(crate) vectors: u64,
    /// How many there were and are not any more.
    pub(crate) removed: i64,
}

impl Model {
    /// Passes if a vector of this many numbers can be one of the model's.
    pub(crate) fn check(&self, name: &str, given: usize) -> Result<(), MemoryError> {
        let known = self.dimension;
        if given == known {
            return Ok(());
        }
        Err(MemoryError::Dimension { model: name.into(), given, known })
    }
}

/// The model of this name, if there are vectors of it.
pub(crate) fn model(connection: &Connection, name: &str) -> Result<Option<Model>, Failure> {
    let sql = "SELECT number, dimension, vectors, removed FROM models WHERE name = ?1";
    let found = connection.prepare_cached(sql)?.query_row([name], |row| {
        Ok(Model {
            number: row.get(0)?,
            dimension: row.get(1)?,
            vectors: row.get(2)?,
            removed: row.get(3)?,
        })
    });
    Ok(found.optional()?)
}

#[cfg(test)]
#[path = "vector_tests.rs"]
mod tests;

//! The vectors of a session in memory, small enough to be looked through as a whole.
//!
//! Every number is one byte (a vector has its own scale), a quarter of what is stored. All vectors are compared with
//! the question in this form, in integers and with the processor's wide registers, and the best of them again
//! in full: what is found is what a full scan finds, but for vectors whose cosines differ by less than a
//! thousandth or so. It is made as quickly as the vectors are read, a new vector is added at the end, and the same
//! question has the same answer every time. A graph would search large sessions faster, but takes a minute and
//! more to make for a hundred thousand vectors.

use std::{cmp::Reverse, collections::HashSet};

use pulp::{Arch, Simd, WithSimd};

/// The largest number of a cell.
const FULL: f32 = 127.0;

/// What a vector takes besides its cells, in bytes.
const BESIDES: usize = size_of::<i64>() * 2 + size_of::<f32>();

/// What an empty plane takes, with what it is kept in.
const LEAST: usize = 512;

/// Which part of a plane is room for more, and the least, in vectors.
const SPARE_PART: usize = 8;
const LEAST_SPARE: usize = 16;

/// The vectors of one model in one session, or in all.
pub(crate) struct Plane {
    dimension: usize,
    /// The numbers of the vectors in the database, ascending.
    numbers: Vec<i64>,
    /// The places of their records.
    places: Vec<i64>,
    /// What a cell is multiplied with.
    scales: Vec<f32>,
    /// The vectors, one behind the other.
    cells: Vec<i8>,
    /// How many vectors had been removed from the database when this was made.
    pub(crate) removed: i64,
}

impl Plane {
    pub(crate) fn new(dimension: usize, removed: i64) -> Self {
        Self {
            dimension,
            numbers: Vec::new(),
            places: Vec::new(),
            scales: Vec::new(),
            cells: Vec::new(),
            removed,
        }
    }

    /// Adds a vector. It has the plane's dimension.
    pub(crate) fn push(&mut self, number: i64, place: i64, unit: &[f32]) {
        if self.numbers.len() == self.numbers.capacity() {
            self.grow();
        }
        let (scale, cells) = in_cells(unit);
        self.numbers.push(number);
        self.places.push(place);
        self.scales.push(scale);
        self.cells.extend(cells);
    }

    /// Makes room for an eighth more. To double it, as vectors do by themselves, would take twice the memory that is
    /// needed.
    fn grow(&mut self) {
        let more = (self.len() / SPARE_PART).max(LEAST_SPARE);
        self.numbers.reserve_exact(more);
        self.places.reserve_exact(more);
        self.scales.reserve_exact(more);
        self.cells.reserve_exact(more.saturating_mul(self.dimension));
    }

    /// The number of the last vector.
    pub(crate) fn last(&self) -> Option<i64> {
        self.numbers.last().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// How much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        LEAST + self.cells.capacity() + self.numbers.capacity() * BESIDES
    }

    /// How much memory one of so many vectors takes at most.
    pub(crate) fn expected_bytes(vectors: usize, dimension: usize) -> usize {
        let with_spare = vectors.saturating_add((vectors / SPARE_PART).max(LEAST_SPARE));
        LEAST.saturating_add(with_spare.saturating_mul(dimension.saturating_add(BESIDES)))
    }

    /// The numbers of the `most` vectors that look nearest, nearest first; only of records at `allowed` places, if
    /// that is given.
    pub(crate) fn nearest(
        &self,
        unit: &[f32],
        most: usize,
        allowed: Option<&HashSet<i64>>,
    ) -> Vec<i64> {
        let question = in_steps(unit);
        let products = Arch::new().dispatch(Products {
            cells: &self.cells,
            dimension: self.dimension.max(1),
            question: &question,
        });
        let candidates = products.iter().zip(&self.scales).zip(&self.numbers).zip(&self.places);
        let mut near: Vec<(f32, i64)> = candidates
            .filter(|(_, place)| allowed.is_none_or(|allowed| allowed.contains(place)))
            .map(|(((product, scale), number), _)| (*product as f32 * *scale, *number))
            .collect();
        let nearer = |one: &(f32, i64), other: &(f32, i64)| {
            other.0.total_cmp(&one.0).then(Reverse(one.1).cmp(&Reverse(other.1)))
        };
        if near.len() > most && most > 0 {
            near.select_nth_unstable_by(most - 1, nearer);
        }
        near.truncate(most);
        near.sort_unstable_by(nearer);
        near.into_iter().map(|(_, number)| number).collect()
    }
}

/// The scale and the cells of a vector.
fn in_cells(unit: &[f32]) -> (f32, impl Iterator<Item = i8>) {
    let largest = unit.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
    let scale = largest / FULL;
    // Not zero: a vector of length one has a number that is not.
    let steps = if scale > 0.0 { scale.recip() } else { 0.0 };
    // Rounded by way of whole numbers from 1 to 255, which takes one instruction where `round` is a call.
    let rounded = move |number: &f32| (number * steps + (FULL + 1.5)) as i32 - (FULL as i32 + 1);
    (scale, unit.iter().map(move |number| rounded(number) as i8))
}

/// A question, as finely as a sum over all its numbers allows. Only the order of the products matters, so that its
/// scale is not kept.
fn in_steps(unit: &[f32]) -> Vec<i16> {
    let largest = unit.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
    let most = i32::MAX / FULL as i32 / i32::try_from(unit.len().max(1)).unwrap_or(i32::MAX);
    let full = most.min(i32::from(i16::MAX)) as f32;
    let steps = if largest > 0.0 { full / largest } else { 0.0 };
    unit.iter().map(|number| (number * steps).trunc() as i16).collect()
}

/// The products of a question with every vector.
struct Products<'a> {
    cells: &'a [i8],
    dimension: usize,
    question: &'a [i16],
}

impl WithSimd for Products<'_> {
    type Output = Vec<i32>;

    // Everything in here is inlined, so that it is compiled for the registers that were found.
    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Self::Output {
        let mut products = vec![0; self.cells.len() / self.dimension];
        let vectors = self.cells.chunks_exact(self.dimension);
        for (product, vector) in products.iter_mut().zip(vectors) {
            let mut sum = 0;
            for (cell, asked) in vector.iter().zip(self.question) {
                sum += i32::from(*cell) * i32::from(*asked);
            }
            *product = sum;
        }
        products
    }
}

#[cfg(test)]
#[path = "plane_tests.rs"]
mod tests;

//! Tables and numbers as people read them.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets::NOTHING};
use tollgate_contract::text::for_terminal;

/// A table without lines, under this header. The columns named by `numbers` stand to the right.
pub(crate) fn new(header: &[&str], numbers: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for place in numbers {
        if let Some(column) = table.column_mut(*place) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The table as it is written: nothing behind the last word of a line, and nothing a terminal would act on.
pub(crate) fn text(table: &Table) -> String {
    for_terminal(&table.lines().map(|line| format!("{}\n", line.trim_end())).collect::<String>())
}

/// A number with its thousands apart.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Lines of `name value`, each broken between words where the terminal ends, behind the place of the value.
pub(crate) fn wrapped(text: &str) -> String {
    let indent = 14;
    text.lines()
        .map(|line| match line.split_at_checked(indent) {
            Some((name, value)) => format!("{name}{}\n", crate::output::wrap(value, indent)),
            None => format!("{line}\n"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        let written: Vec<String> = [0, 999, 1000, 12_345_678].into_iter().map(count).collect();
        assert_eq!(written, ["0", "999", "1,000", "12,345,678"]);
    }
}

//! Markdown tables, and fitted lines.

use serde_json::Value;

/// A table with a heading.
pub(crate) struct Table {
    heading: String,
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    notes: Vec<String>,
}

impl Table {
    pub(crate) fn new(heading: &str, columns: &[&'static str]) -> Self {
        Self { heading: heading.to_owned(), columns: columns.to_vec(), rows: Vec::new(), notes: Vec::new() }
    }

    pub(crate) fn heading(&self) -> &str {
        &self.heading
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// Adds a note on whether a target is reached.
    pub(crate) fn aim(&mut self, reached: bool, text: &str) {
        self.notes.push(format!("{} {text}", if reached { "Reached:" } else { "NOT reached:" }));
    }

    /// Pads columns to their widest cell, so that the source is readable.
    pub(crate) fn render(&self) -> String {
        let width = |column: usize, heading: &str| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(heading.chars().count())
        };
        let widths: Vec<usize> = self.columns.iter().enumerate().map(|(index, it)| width(index, it)).collect();
        let line = |cells: &[String]| {
            let cells = cells.iter().zip(&widths).enumerate().map(|(index, (cell, width))| {
                if index == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
        };
        let headings: Vec<String> = self.columns.iter().map(|it| (*it).to_owned()).collect();
        let rule = widths.iter().enumerate().map(|(index, width)| {
            if index == 0 { "-".repeat(*width) } else { format!("{}:", "-".repeat(width.saturating_sub(1))) }
        });
        let mut text = line(&headings);
        text.push_str(&line(&rule.collect::<Vec<_>>()));
        self.rows.iter().for_each(|row| text.push_str(&line(row)));
        for note in &self.notes {
            text.push_str(&format!("\n{note}\n"));
        }
        text.trim_end().to_owned()
    }
}

/// The number at `key`, or zero.
pub(crate) fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or(0.0)
}

/// The median of the list; zero if it is empty.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// All numbers of a list.
pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

/// The title, marked if `invariants::check` rejects the plan.
pub(crate) fn marked(title: &str, told: &Value) -> String {
    if told["violations"] == 0 { title.to_owned() } else { format!("{title} (PLAN NOT VALID)") }
}

/// A readable duration.
pub(crate) fn seconds(value: f64) -> String {
    if value < 0.001 {
        format!("{:.0} us", value * 1e6)
    } else if value < 1.0 {
        format!("{:.1} ms", value * 1e3)
    } else {
        format!("{value:.2} s")
    }
}

/// A readable percentage.
pub(crate) fn percent(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

/// The fraction at `key` as a percentage; `-` if it is null, as the gap of a plan without a lower bound.
pub(crate) fn percent_at(value: &Value, key: &str) -> String {
    value[key].as_f64().map_or_else(|| "-".to_owned(), percent)
}

/// The exponent b of y = a x^b, fitted to the points by least squares of the logarithms.
pub(crate) fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.max(1e-9).ln())).collect();
    let count = logs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|it| it.0), mean(|it| it.1));
    let both: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let spread: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    if spread == 0.0 { 0.0 } else { both / spread }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_those_of_the_powers() {
        for power in [0.0, 0.5, 1.0, 2.0] {
            let points: Vec<(f64, f64)> = [1.0, 10.0, 100.0].iter().map(|x: &f64| (*x, 3.0 * x.powf(power))).collect();
            assert!((exponent(&points) - power).abs() < 1e-9, "{power}");
        }
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!(median(&[]).abs() < f64::EPSILON);
    }

    #[test]
    fn a_percentage_that_is_null_is_not_zero() {
        let plan = serde_json::json!({"gap": 0.25, "unbounded": null});
        assert_eq!(["gap", "unbounded"].map(|key| percent_at(&plan, key)), ["25.0 %", "-"]);
    }

    #[test]
    fn tables_line_up() {
        let mut table = Table::new("Times", &["what", "s"]);
        table.row(vec!["a".to_owned(), "10".to_owned()]);
        assert_eq!(table.render(), "| what |  s |\n| ---- | -: |\n| a    | 10 |");
    }
}

//! The ratios as a picture.

use std::fmt::Write as _;

use super::figures::Compared;

const WIDTH: f64 = 860.0;
/// Where the bars begin, behind their names.
const LEFT: f64 = 430.0;
const RIGHT: f64 = 70.0;
const STEP: f64 = 34.0;
const TOP: f64 = 46.0;

/// Bars of how many times as fast Ringfence is as etcd, on a logarithmic scale; a thin line shows the spread.
pub(super) fn ratios(measured: &[Compared]) -> String {
    let gains: Vec<_> = measured.iter().map(Compared::gain).collect();
    let greatest = gains.iter().map(|gain| gain.greatest).fold(10.0, f64::max);
    let least = gains.iter().map(|gain| gain.least).fold(1.0, f64::min);
    let scale = (WIDTH - LEFT - RIGHT) / (greatest / least).log10();
    let place = |gain: f64| LEFT + (gain / least).log10() * scale;
    let height = TOP + STEP * measured.len() as f64 + 12.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <title>How many times as fast as etcd, on a logarithmic scale</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"12\" y=\"24\" font-weight=\"600\" fill=\"#1d2733\">How many times as fast as etcd (same \
         machine, in turns; logarithmic)</text>\n"
    );
    let one = place(1.0);
    let bottom = height - 8.0;
    // A string takes everything.
    writeln!(
        svg,
        "<line x1=\"{one:.1}\" y1=\"{TOP}\" x2=\"{one:.1}\" y2=\"{bottom}\" stroke=\"#8a97a6\"/>"
    )
    .ok();
    for (at, (compared, gain)) in measured.iter().zip(&gains).enumerate() {
        let y = TOP + STEP * at as f64;
        let (from, to) = (place(gain.median.min(1.0)), place(gain.median.max(1.0)));
        let (low, high) = (place(gain.least), place(gain.greatest));
        let middle = y + 11.0;
        writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#1d2733\">{}</text>\n\
             <rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"22\" rx=\"3\" fill=\"#2f6fb5\"/>\n\
             <line x1=\"{low:.1}\" y1=\"{middle:.1}\" x2=\"{high:.1}\" y2=\"{middle:.1}\" stroke=\"#12263d\" \
             stroke-width=\"2\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#1d2733\">{:.1}×</text>",
            LEFT - 10.0,
            y + 16.0,
            shortened(compared.row.work),
            (to - from).max(1.0),
            high.max(to) + 8.0,
            y + 16.0,
            gain.median,
        )
        .ok();
    }
    svg + "</svg>\n"
}

/// What has room before a bar.
fn shortened(work: &str) -> String {
    const CHARACTERS: usize = 58;
    match work.chars().count() > CHARACTERS {
        true => work.chars().take(CHARACTERS - 1).chain(['…']).collect(),
        false => work.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::rows::ROWS;
    use super::*;

    #[test]
    fn a_bar_for_each_row_lies_inside_of_the_picture_also_where_etcd_is_faster() {
        let rates = [5, 1_000, 30, 17, 4, 100_000];
        let mut measured: Vec<Compared> = ROWS.iter().map(Compared::new).collect();
        for (compared, rate) in measured.iter_mut().zip(rates) {
            let printed = |rate: u32| json!({"per_second": rate, "acquire": {"p50_us": rate}});
            compared.add(printed(rate), printed(10)).unwrap();
        }
        let svg = ratios(&measured);
        assert_eq!(svg.matches("rx=\"3\"").count(), ROWS.len());
        for part in svg.split(" x=\"").skip(1) {
            let x: f64 = part.split('"').next().unwrap().parse().unwrap();
            assert!((0.0..WIDTH).contains(&x), "{x} in {svg}");
        }
    }
}

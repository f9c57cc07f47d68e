//! A timeline as a picture: an SVG that needs no other file, with a background for white and for dark pages.

use std::fmt::Write;

use super::Timeline;
use super::chart::{Budget, Chart, Lane, Mark, MarkKind, Phase};
use crate::events::{date, duration, time_of_day};

/// The width of the bars, and the least one of what is left of them.
const BARS: f64 = 790.0;
const LEAST_LEFT: f64 = 150.0;
const MARGIN: f64 = 16.0;
const RIGHT: f64 = 20.0;
/// The width of a letter of a name, at most: names are lower case, and most letters are narrower.
const LETTER: f64 = 8.0;
const TOP: f64 = 70.0;
const LANE: f64 = 34.0;
const BAR: f64 = 16.0;

/// The SVG.
pub fn draw(timeline: &Timeline) -> String {
    let chart = &timeline.chart;
    let lanes = f64::from(u32::try_from(chart.lanes.len()).unwrap_or_default());
    let width = left(chart) + BARS + RIGHT;
    let bottom = TOP + lanes * LANE + 8.0;
    let height = bottom + 74.0;
    let begin = i64::try_from(chart.begin_ms).unwrap_or_default() + timeline.wall_offset_ms;
    let mut body = String::new();
    let title = format!("Pod {}", timeline.title);
    text(&mut body, (MARGIN, 26.0), "title", &title);
    let since = format!("{} from {} {} UTC on", duration(chart.length_ms()), date(begin), time_of_day(begin));
    text(&mut body, (MARGIN, 44.0), "small", &since);
    chart.budgets.iter().for_each(|budget| draw_budget(&mut body, chart, *budget, bottom));
    axis(&mut body, chart, bottom);
    for (number, lane) in chart.lanes.iter().enumerate() {
        let y = TOP + f64::from(u32::try_from(number).unwrap_or_default()) * LANE;
        draw_lane(&mut body, chart, lane, y);
    }
    for mark in &chart.marks {
        let x = x_of(chart, mark.at_ms);
        line(&mut body, (x, TOP - 6.0), (x, bottom), "#8250df", &mark.text);
    }
    legend(&mut body, chart, bottom + 34.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"podshim-title podshim-desc\">\n\
         <title id=\"podshim-title\">{}</title>\n<desc id=\"podshim-desc\">{}</desc>\n<style>text {{ font: 12px sans-serif; fill: #24292f }} \
         .title {{ font-weight: bold; font-size: 15px }} .small {{ font-size: 11px; fill: #57606a }}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}</svg>\n",
        escaped(&title),
        escaped(&description(chart, &since))
    )
}

/// What is left of the bars: all names have room.
fn left(chart: &Chart) -> f64 {
    let letters = chart.lanes.iter().map(|lane| lane.name.chars().count()).max().unwrap_or_default();
    (MARGIN * 2.0 + f64::from(u32::try_from(letters).unwrap_or(u32::MAX)) * LETTER).max(LEAST_LEFT)
}

/// The picture in words, for a reader that cannot see it: each container with its phases.
fn description(chart: &Chart, since: &str) -> String {
    let lane = |lane: &Lane| {
        let phases = lane.spans.iter().map(|span| {
            format!("{} {}", span.phase.words(), duration(span.to_ms.saturating_sub(span.from_ms)))
        });
        let mut ends = lane.marks.iter().filter(|mark| mark.kind.is_end()).map(|mark| mark.text.clone());
        let all: Vec<_> = phases.chain(ends.next_back()).collect();
        let role = if lane.role.is_empty() { String::new() } else { format!(" ({})", lane.role) };
        format!(
            " {}{role}: {}.",
            lane.name,
            if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
        )
    };
    format!("{since}.{}", chart.lanes.iter().map(lane).collect::<String>())
}

fn x_of(chart: &Chart, at_ms: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a picture has a thousand columns")]
    let share = at_ms.saturating_sub(chart.begin_ms) as f64 / chart.length_ms() as f64;
    left(chart) + share.min(1.0) * BARS
}

fn draw_lane(body: &mut String, chart: &Chart, lane: &Lane, y: f64) {
    text(body, (MARGIN, y + BAR - 3.0), "", &lane.name);
    text(body, (MARGIN, y + BAR + 9.0), "small", &lane.role);
    for span in &lane.spans {
        let (from, to) = (x_of(chart, span.from_ms), x_of(chart, span.to_ms));
        let length = duration(span.to_ms.saturating_sub(span.from_ms));
        let title = format!("{}: {} for {length}", lane.name, span.phase.words());
        rectangle(body, (from, y), (to - from).max(1.0), span.phase, &title);
    }
    for mark in &lane.marks {
        draw_mark(body, x_of(chart, mark.at_ms), y, mark);
    }
}

fn draw_mark(body: &mut String, x: f64, y: f64, mark: &Mark) {
    let middle = y + BAR / 2.0;
    let (shape, colour) = match mark.kind {
        MarkKind::Gate => (format!("M{x:.1} {y:.1}v{BAR}"), "#0969da"),
        MarkKind::Signal => (format!("M{x:.1} {y:.1}l-5 -7h10z"), "#bc4c00"),
        MarkKind::Done => (format!("M{:.1} {middle:.1}l3 4l6 -8", x - 5.0), "#1a7f37"),
        MarkKind::BySignal => (format!("M{:.1} {:.1}h6v6h-6z", x - 3.0, middle - 3.0), "#1a7f37"),
        MarkKind::Unseen => (format!("M{:.1} {:.1}h6v6h-6z", x - 3.0, middle - 3.0), "#57606a"),
        MarkKind::Failure => (format!("M{:.1} {:.1}l8 8m0 -8l-8 8", x - 4.0, middle - 4.0), "#cf222e"),
        MarkKind::Hook => (format!("M{x:.1} {:.1}l4 4l-4 4l-4 -4z", y + BAR), "#8250df"),
        MarkKind::Budget => return,
    };
    let filled = matches!(mark.kind, MarkKind::Signal | MarkKind::BySignal | MarkKind::Hook);
    let fill = if filled { colour } else { "none" };
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        body,
        "<path d=\"{shape}\" stroke=\"{colour}\" stroke-width=\"2.5\" fill=\"{fill}\"><title>{}</title></path>",
        escaped(&mark.text)
    );
}

fn draw_budget(body: &mut String, chart: &Chart, budget: Budget, bottom: f64) {
    let (x, end) = (x_of(chart, budget.from_ms), x_of(chart, budget.to_ms));
    let title = format!("the stop's budget: {}", duration(budget.time_ms));
    let _ = writeln!(
        body,
        "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#8250df\" fill-opacity=\"0.08\">\
         <title>{title}</title></rect>",
        TOP - 6.0,
        (end - x).max(1.0),
        bottom - TOP + 6.0
    );
    text(body, (x + 3.0, TOP - 10.0), "small", &title);
}

fn axis(body: &mut String, chart: &Chart, bottom: f64) {
    for tick in chart.ticks(10) {
        let x = x_of(chart, chart.at(tick));
        line(body, (x, TOP - 4.0), (x, bottom), "#d0d7de", "");
        text(body, (x, bottom + 13.0), "small", &duration(tick));
    }
}

fn legend(body: &mut String, chart: &Chart, y: f64) {
    let mut x = MARGIN;
    for phase in chart.phases() {
        rectangle(body, (x, y - 11.0), 14.0, phase, "");
        text(body, (x + 19.0, y + 1.0), "", phase.words());
        x += 112.0;
    }
    let mut x = 20.0;
    for kind in chart.mark_kinds() {
        // In a lane a signal is above the bar and a hook below it.
        let shift = match kind {
            MarkKind::Signal => 12.0,
            MarkKind::Hook => -11.0,
            _ => 0.0,
        };
        draw_mark(body, x, y + 16.0 + shift, &Mark { at_ms: 0, kind, text: kind.words().to_owned() });
        text(body, (x + 15.0, y + 28.0), "", kind.words());
        x += 158.0;
    }
}

fn rectangle(body: &mut String, (x, y): (f64, f64), width: f64, phase: Phase, title: &str) {
    let (fill, opacity) = match phase {
        Phase::Created => ("#d0d7de", 1.0),
        Phase::Held => ("#f2cc60", 0.55),
        Phase::Starting => ("#9be9a8", 1.0),
        Phase::GateClosed => ("#f2cc60", 1.0),
        Phase::Running => ("#2da44e", 1.0),
        Phase::Stopping => ("#e8892f", 1.0),
        Phase::BackingOff => ("#ff8182", 0.6),
        Phase::Paused => ("#8c959f", 1.0),
    };
    let _ = writeln!(
        body,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{fill}\" \
         fill-opacity=\"{opacity}\"><title>{}</title></rect>",
        escaped(title)
    );
}

fn line(body: &mut String, from: (f64, f64), to: (f64, f64), colour: &str, title: &str) {
    let _ = writeln!(
        body,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"><title>{}</title></line>",
        from.0,
        from.1,
        to.0,
        to.1,
        escaped(title)
    );
}

fn text(body: &mut String, (x, y): (f64, f64), class: &str, words: &str) {
    let _ = writeln!(body, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escaped(words));
}

/// Escapes text for SVG and HTML: the pods' authors write names and reasons.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::tests::life;

    #[test]
    fn a_picture_has_a_bar_for_each_phase_and_its_budget() {
        let picture = draw(&life());
        assert!(picture.contains("<title>proxy: backing off for 600ms</title>"), "{picture}");
        assert!(
            picture.contains("the stop&apos;s budget: 10s") || picture.contains("the stop's budget: 10s")
        );
        assert_eq!(picture.matches("<svg").count(), 1);
        assert_eq!(picture.matches("<rect").count(), picture.matches("</rect>").count() + 1);
    }

    /// N9: no bar is drawn over a name of 63 letters, and who cannot see the picture hears what it shows.
    #[test]
    fn found_n9_names_have_room_and_the_picture_has_words() {
        let mut life = life();
        life.chart.lanes[0].name = "n".repeat(63);
        let picture = draw(&life);
        let bars = picture.lines().filter_map(|line| {
            let mut values = line.strip_prefix("<rect x=\"")?.split('"').step_by(2);
            let (x, y) = (values.next()?.parse::<f64>().ok()?, values.next()?.parse::<f64>().ok()?);
            let is_legend = y > TOP + 2.0 * LANE;
            (!is_legend).then_some(x)
        });
        let least = bars.fold(f64::MAX, f64::min);
        assert!(least >= MARGIN + 63.0 * LETTER, "{least}");
        let width: f64 =
            picture.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
        assert!(width >= least + BARS, "{width}");
        assert!(picture.contains("aria-labelledby=\"podshim-title podshim-desc\""), "{picture}");
        assert!(picture.contains("<title id=\"podshim-title\">Pod prod/web</title>"), "{picture}");
        let words = picture.split("<desc id=\"podshim-desc\">").nth(1).unwrap().split('<').next().unwrap();
        assert!(words.contains(" app (main): created 100ms, held 1.8s,"), "{words}");
        assert!(words.contains(", stopping 1s, exited with 0."), "{words}");
    }

    /// A container's name or a probe's message must not become markup.
    #[test]
    fn what_pods_say_cannot_be_markup() {
        let mut life = life();
        life.chart.lanes[0].name = "<script>".to_owned();
        life.title = "\"&\"".to_owned();
        let picture = draw(&life);
        assert!(!picture.contains("<script>"), "{picture}");
        assert!(picture.contains("&quot;&amp;&quot;"), "{picture}");
    }
}

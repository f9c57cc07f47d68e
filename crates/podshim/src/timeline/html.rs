//! A timeline as one HTML page: the picture and a table of all events. The page loads nothing from elsewhere.

use std::fmt::Write;

use super::Timeline;
use super::svg::{draw, escaped};
use crate::events::{duration, time_of_day};

/// The HTML page.
pub fn page(timeline: &Timeline) -> String {
    let title = escaped(&format!("Pod {}", timeline.title));
    let mut rows = String::new();
    for row in &timeline.rows {
        let after = duration(timeline.since_begin(row.at_ms));
        // Writing to a string cannot fail.
        let _ = writeln!(
            rows,
            "<tr><td>{}</td><td>{after}</td><td>{}</td><td>{}</td></tr>",
            time_of_day(row.wall_ms),
            escaped(&row.who),
            escaped(&row.sentence)
        );
    }
    let lost = match timeline.lost {
        0 => String::new(),
        lost => format!("<p>{lost} events before these are not kept any more.</p>\n"),
    };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>\n\
         body {{ font: 14px sans-serif; margin: 2em; color: #24292f; background: #ffffff }}\n\
         table {{ border-collapse: collapse }}\n\
         td, th {{ text-align: left; padding: 2px 14px 2px 0; vertical-align: top }}\n\
         th {{ border-bottom: 1px solid #d0d7de }}\n\
         td:nth-child(-n+2) {{ color: #57606a; white-space: nowrap }}\n\
         svg {{ max-width: 100%; height: auto }}\n</style>\n</head>\n<body>\n{}{lost}<table>\n\
         <caption>What happened to the pod</caption>\n<tr><th scope=\"col\">UTC</th><th scope=\"col\">after</th>\
         <th scope=\"col\">container</th><th scope=\"col\">what happened</th></tr>\n{rows}</table>\n</body>\n</html>\n",
        draw(timeline)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::tests::life;

    #[test]
    fn a_page_has_the_picture_and_every_event() {
        let life = life();
        let page = page(&life);
        assert_eq!(page.matches("<tr><td>").count(), life.rows.len());
        assert!(page.contains("<svg"), "{page}");
        assert!(page.contains("<td>00:16:40.100</td><td>0s</td><td>app</td><td>created</td>"), "{page}");
    }
}

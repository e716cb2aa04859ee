//! A report for browsers: one file without scripts and without references to others.

mod bars;
mod values;

use std::fmt::Write;

use super::{Section, answer::Answer, plots, publications, quote};
use crate::plot::{escape, svg};

const STYLE: &str = include_str!("style.css");

/// Returns the page of all sections.
pub(crate) fn page(sections: &[Section]) -> String {
    let titles: Vec<String> = sections.iter().map(|section| escape(&section.results.head.scenario.title)).collect();
    let title = if titles.len() == 1 { titles.concat() } else { "Container engines on this machine".to_owned() };
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n"
    );
    let has_one_machine = sections.windows(2).all(|pair| pair[0].results.head.machine == pair[1].results.head.machine);
    if let Some(section) = sections.first().filter(|_| has_one_machine) {
        let head = &section.results.head;
        let (machine, tool) = (escape(&head.machine.line()), escape(&head.tool));
        let _ = writeln!(text, "<p class=\"dim\">{machine}; pinion-bench {tool}</p>");
    }
    if sections.len() > 1 {
        contents(&mut text, sections);
    }
    for (number, section) in sections.iter().enumerate() {
        write_section(&mut text, section, number);
    }
    text.push_str("</body>\n</html>\n");
    text
}

/// Writes the answers of all sections, with links to them.
fn contents(text: &mut String, sections: &[Section]) {
    for (number, section) in sections.iter().enumerate() {
        let title = escape(&section.results.head.scenario.title);
        let _ = writeln!(text, "<h3><a href=\"#s{number}\">{title}</a></h3>");
        let answer = Answer::of(section);
        list(text, "plain", answer.headlines.iter().chain(&answer.standing));
    }
}

fn write_section(text: &mut String, section: &Section, number: usize) {
    let scenario = &section.results.head.scenario;
    let answer = Answer::of(section);
    let (title, work) = (escape(&scenario.title), escape(&scenario.work));
    let _ = writeln!(text, "<h2 id=\"s{number}\">{title}</h2>\n<p>{work}</p>");
    list(text, "answer", answer.headlines.iter());
    list(text, "plain", answer.standing.iter());
    if !answer.not_best.is_empty() {
        let name = scenario.contestants.first().map(|contestant| escape(&contestant.name)).unwrap_or_default();
        let _ = writeln!(text, "<h3>Where {name} is not the best</h3>");
        list(text, "plain bad", answer.not_best.iter());
    }
    if !answer.failures.is_empty() {
        text.push_str("<h3>Failures</h3>\n");
        list(text, "plain bad", answer.failures.iter());
    }
    let charts = plots::charts(section);
    if !charts.is_empty() {
        let plots: Vec<String> = charts.iter().map(|chart| format!("<figure>{}</figure>\n", svg(chart))).collect();
        let _ = writeln!(text, "<div class=\"plots\">\n{}</div>", plots.concat());
    }
    for parameter in section.parameters() {
        let _ = writeln!(text, "<h3>{}</h3>", escape(&section.group_title(parameter)));
        for row in section.rows.iter().filter(|row| row.parameter == parameter) {
            bars::write(text, section, row);
        }
    }
    write_publications(text, section);
    list(text, "plain dim", answer.notes.iter());
    values::write(text, section);
    write_setting(text, section);
}

/// Writes what others have published about the same work.
fn write_publications(text: &mut String, section: &Section) {
    for comparison in publications::of(section) {
        let publication = comparison.publication;
        let (source, url) = (escape(publication.source), escape(publication.url));
        let _ = writeln!(text, "<h3>Published: {source}</h3>\n<p><a href=\"{url}\">{url}</a></p>");
        let _ = writeln!(text, "<p>{}. {}</p>", escape(publication.setting), escape(publication.remark));
        if comparison.lines.is_empty() {
            continue;
        }
        let columns = if comparison.has_values() { 3 } else { 2 };
        let names = ["", "published", "this run"];
        let header: Vec<String> = names.iter().take(columns).map(|name| format!("<th>{name}</th>")).collect();
        let _ = writeln!(text, "<table class=\"values\"><thead><tr>{}</tr></thead><tbody>", header.concat());
        for line in &comparison.lines {
            let cells = names.iter().zip([line.published.name, line.published.value, &line.value]).take(columns);
            let cells: Vec<String> =
                cells.map(|(name, cell)| format!("<td data-name=\"{name}\">{}</td>", escape(cell))).collect();
            let _ = writeln!(text, "<tr>{}</tr>", cells.concat());
        }
        text.push_str("</tbody></table>\n");
    }
}

/// Writes what is needed to repeat the run.
fn write_setting(text: &mut String, section: &Section) {
    let head = &section.results.head;
    text.push_str("<h3>Contestants and setting</h3>\n<dl>\n");
    for contestant in &head.scenario.contestants {
        let (name, version) = (escape(&contestant.name), escape(&contestant.version));
        let _ = writeln!(text, "<dt>{name}</dt><dd>{version}; {}</dd>", escape(&contestant.configuration));
    }
    for (name, value) in &head.scenario.settings {
        let _ = writeln!(text, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    }
    let _ = writeln!(text, "<dt>rounds</dt><dd>{}</dd>", head.scenario.rounds);
    let _ = writeln!(text, "<dt>machine</dt><dd>{}</dd>\n</dl>", escape(&head.machine.line()));
    let _ = writeln!(text, "<pre>{}</pre>", escape(&quote::command(head)));
}

fn list<'a>(text: &mut String, class: &str, items: impl Iterator<Item = &'a String>) {
    let items: Vec<String> = items.map(|item| format!("<li>{}</li>\n", escape(item))).collect();
    if !items.is_empty() {
        let _ = writeln!(text, "<ul class=\"{class}\">\n{}</ul>", items.concat());
    }
}

//! Charts are drawn from any data that makes sense, equal data to equal bytes, and from no other.

use divvy_plot::{Areas, Axis, Bar, Chart, Gantt, Line, Lines, Panel, Panels, Sheet, Surface};

fn gantt(rows: usize, bars: Vec<Bar>) -> Chart {
    let rows = (0..rows).map(|row| format!("client {row}")).collect();
    let (title, time) = (String::from("runs"), Axis::linear("time, ms"));
    Chart::Gantt(Gantt { title, time, rows, colours: Vec::new(), start: 0.0, end: 60.0, bars })
}

fn lines(lines: Vec<Line>, x: Axis) -> Chart {
    Chart::Lines(Lines { title: "lines".into(), x, y: Axis::linear("y"), lines })
}

fn areas(parts: Vec<Vec<f64>>) -> Chart {
    let names = (0..parts.len()).map(|i| format!("part {i}")).collect();
    let (x, y) = (Axis::linear("time, s"), Axis::linear("part of the CPU"));
    Chart::Areas(Areas { title: "areas".into(), x, y, end: 10.0, top: 1.0, names, parts })
}

fn surface(heights: Vec<Vec<f64>>) -> Chart {
    let ticks = |nr: usize| (0..nr).map(|i| i.to_string()).collect();
    Chart::Surface(Surface {
        title: "surface".into(),
        x: Axis::linear("x"),
        y: Axis::linear("y"),
        z: Axis::linear("z"),
        x_ticks: ticks(heights.first().map_or(0, Vec::len)),
        y_ticks: ticks(heights.len()),
        sheets: vec![Sheet { name: "sheet".into(), heights }],
    })
}

fn attribute(element: &str, name: &str) -> f64 {
    let value = element.split(&format!("{name}=\"")).nth(1).unwrap().split('"').next().unwrap();
    value.parse().unwrap()
}

/// Filled rectangles of an SVG, the white ground left out: left, width.
fn rectangles(svg: &str) -> Vec<(f64, f64)> {
    let rects = svg.split("<rect").skip(2).map(|rest| rest.split("/>").next().unwrap());
    rects.map(|rect| (attribute(rect, "x"), attribute(rect, "width"))).collect()
}

#[test]
fn equal_data_are_drawn_to_equal_bytes() {
    let bar = |row, from| Bar { row, colour: row, from, to: from + 10.0 };
    for chart in [
        gantt(3, vec![bar(0, 0.0), bar(1, 10.0), bar(2, 20.0)]),
        lines(
            vec![Line::new("a", [(1.0, 2.0), (2.0, 3.0)]), Line::new("b", [(1.0, 1.0)]).dashed()],
            Axis::log("x"),
        ),
        areas(vec![vec![0.5, 1.0], vec![0.5, 0.0]]),
        surface(vec![vec![0.0, 1.0], vec![-1.0, 2.0]]),
    ] {
        assert_eq!(chart.to_svg().unwrap(), chart.to_svg().unwrap());
        let png = chart.to_png().unwrap();
        assert_eq!(png, chart.to_png().unwrap());
        // Twice the points of the SVG, and not an empty sheet.
        let header = png::Decoder::new(std::io::Cursor::new(&png)).read_info().unwrap();
        assert_eq!((header.info().width, header.info().height), (1800, 1080));
        assert!(png.len() > 5_000, "{}", png.len());
    }
}

#[test]
fn bars_stand_where_their_runs_are() {
    let bar = |row, from, to| Bar { row, colour: row, from, to };
    let svg = gantt(2, vec![bar(0, 0.0, 30.0), bar(1, 30.0, 40.0), bar(0, 40.0, 60.0)]).to_svg().unwrap();
    let bars = rectangles(&svg);
    assert_eq!(bars.len(), 3);
    // 30 : 10 : 20 of one length, less the gap of a point and what rounding takes.
    let unit = (bars[2].0 - bars[0].0) / 40.0;
    for ((_, width), length) in bars.iter().zip([30.0, 10.0, 20.0]) {
        assert!((width + 1.0 - unit * length).abs() <= 2.0, "{width} {}", unit * length);
    }
    assert!((bars[1].0 - bars[0].0 - 30.0 * unit).abs() <= 1.0);
}

#[test]
fn very_many_runs_make_no_very_large_picture() {
    let bars = (0..200_000).map(|i| {
        let from = f64::from(i) * 60.0 / 200_000.0;
        Bar { row: i as usize % 2, colour: 0, from, to: from + 60.0 / 200_000.0 }
    });
    let svg = gantt(2, bars.collect()).to_svg().unwrap();
    assert!(svg.len() < 2_000_000, "{}", svg.len());
}

#[test]
fn long_names_are_cut_and_many_are_counted() {
    let long = "a name that is far too long to stand beside anything at all, whoever gave it";
    let many =
        (0..60).map(|i| Line::new(&format!("{long} {i}"), [(0.0, f64::from(i)), (1.0, 1.0)])).collect();
    let svg = lines(many, Axis::linear("x")).to_svg().unwrap();
    assert!(svg.contains('…') && !svg.contains(long));
    assert!(svg.contains("and 41 more"));
    let words = vec!["pbs:alpha=0.3,beta=-3,gamma=0.07".to_owned(); 9];
    let points = (0..9).map(|i| (f64::from(i), 1.0));
    let svg = lines(vec![Line::new("one", points)], Axis::words("", words)).to_svg().unwrap();
    assert!(svg.contains("pbs:") && svg.contains('…'));
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    for (chart, answer) in [
        (gantt(0, Vec::new()), "no rows to draw"),
        (lines(Vec::new(), Axis::linear("x")), "no points to draw"),
        (lines(vec![Line::new("nan", [(0.0, f64::NAN)])], Axis::linear("x")), "no points to draw"),
        (areas(Vec::new()), "no windows to draw"),
        (surface(vec![vec![1.0, 2.0]]), "a surface needs at least two places each way, and a height at each"),
        (surface(vec![vec![1.0, 2.0], vec![f64::NAN, 1.0]]), "a height is not finite"),
    ] {
        assert_eq!(chart.to_svg().unwrap_err().to_string(), answer);
        assert_eq!(chart.to_png().unwrap_err().to_string(), answer);
    }
}

#[test]
fn markup_in_names_stays_text() {
    let svg = lines(
        vec![Line::new("<b>&\"", [(0.0, 1.0), (1.0, 2.0)]), Line::new("c", [(0.0, 1.0)])],
        Axis::linear("<i>"),
    );
    let svg = svg.to_svg().unwrap();
    assert!(!svg.contains("<b>") && !svg.contains("<i>"));
    assert!(svg.contains("&lt;b&gt;"));
}

#[test]
fn panels_stand_below_each_other_with_common_edges() {
    let bar = |row, from, to| Bar { row, colour: row, from, to };
    let upper = gantt(1, vec![bar(0, 0.0, 60.0)]);
    // Its marks are wider, so that alone it would begin further to the right.
    let lower = lines(vec![Line::new("a", [(0.0, 1e7), (60.0, 2e7)])], Axis::linear("x"));
    let panel = |chart: &Chart, height| Panel { chart: chart.clone(), height };
    let both = Chart::Panels(Panels(vec![panel(&upper, 200), panel(&lower, 300)]));
    let png = both.to_png().unwrap();
    let header = png::Decoder::new(std::io::Cursor::new(&png)).read_info().unwrap();
    assert_eq!((header.info().width, header.info().height), (1800, 1000));
    let svg = both.to_svg().unwrap();
    let (left, width) = rectangles(&svg)[0];
    let curve = svg.split("<polyline").find(|line| line.contains("stroke-width=\"2\"")).unwrap();
    let points = curve.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
    let xs: Vec<f64> =
        points.split_whitespace().map(|p| p.split(',').next().unwrap().parse().unwrap()).collect();
    assert!((xs[0] - left).abs() <= 2.0, "{xs:?} {left}");
    assert!((xs[xs.len() - 1] - left - width).abs() <= 3.0, "{xs:?} {left} {width}");
    for bad in [vec![], vec![panel(&upper, 20)], vec![panel(&upper, 5_000), panel(&lower, 5_000)]] {
        assert!(Chart::Panels(Panels(bad)).to_svg().unwrap_err().to_string().starts_with("panels need"));
    }
}

/// More curves than can be told apart have a frame each, with common axes, that are labelled once in a row and column.
#[test]
fn many_curves_have_frames_of_their_own_with_common_axes() {
    let many = |nr: usize, x: Axis| {
        let line = |i: usize| Line::new(&format!("curve {i}"), [(0.0, 0.0), (10.0, 10.0 * (i + 1) as f64)]);
        let (title, y) = ("many".to_owned(), Axis::linear("height"));
        Lines { title, x, y, lines: (0..nr).map(line).collect() }.into_chart()
    };
    assert!(matches!(many(6, Axis::linear("x")), Chart::Lines(_)));
    let words = (0..11).map(|i| i.to_string()).collect();
    assert!(matches!(many(7, Axis::words("x", words)), Chart::Lines(_)), "words need the room");
    let chart = many(8, Axis::linear("x"));
    let svg = chart.to_svg().unwrap();
    assert_eq!(svg, chart.to_svg().unwrap());
    let texts: Vec<&str> = svg.lines().map(str::trim).filter(|line| !line.starts_with('<')).collect();
    let count = |text: &str| texts.iter().filter(|found| **found == text).count();
    for i in 0..8 {
        assert_eq!(count(&format!("curve {i}")), 1, "{texts:?}");
    }
    // Three rows of three, the last of two: the upper end of y in each row, that of x below the last of each row's end.
    assert_eq!((count("height"), count("x"), count("100"), count("10")), (1, 1, 3, 2), "{texts:?}");
    // In each frame the curve itself, of two points: their right ends rise by the same with each.
    let curves = svg.split("<polyline").filter(|line| line.contains("stroke-width=\"2\""));
    let rise = |curve: &str| {
        let points = curve.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
        let ys: Vec<f64> =
            points.split_whitespace().map(|p| p.split(',').nth(1).unwrap().parse().unwrap()).collect();
        ys[0] - ys[1]
    };
    let rises: Vec<f64> = curves.map(rise).collect();
    assert_eq!(rises.len(), 8);
    for (i, rise) in rises.iter().enumerate() {
        assert!((rise - rises[7] * (i + 1) as f64 / 8.0).abs() <= 1.5, "{rises:?}");
    }
    // Among panels it is as high as it has to be.
    let Chart::Multiples(multiples) = &chart else { panic!("frames of their own") };
    let panel = Panel { height: multiples.height(), chart: chart.clone() };
    let png = Chart::Panels(Panels(vec![panel])).to_png().unwrap();
    let header = png::Decoder::new(std::io::Cursor::new(&png)).read_info().unwrap();
    assert_eq!(header.info().height, multiples.height() * 2);
}

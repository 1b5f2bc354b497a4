//! Traces: lines that are read are the same when they were written; a replay and the accounts end in words, not in a panic.
#![no_main]

use divvy_engine::{Playback, Timeline, TraceHeader, TraceLine, TraceReader, replay};
use divvy_policy::ClientId;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let lines = || text.lines().map(str::to_owned);
    let Ok(reader) = TraceReader::new(lines()) else { return };
    let header = reader.header().clone();
    let written = serde_json::to_string(&header).expect("a header can be written");
    assert_eq!(serde_json::from_str::<TraceHeader>(&written).ok().as_ref(), Some(&header));
    let mut playback = Playback::new(&header);
    for read in reader {
        let Ok((_, line)) = read else { continue };
        let written = serde_json::to_string(&line).expect("a line can be written");
        assert_eq!(serde_json::from_str::<TraceLine>(&written).ok().as_ref(), Some(&line));
        if playback.apply(&line).is_err() {
            break;
        }
    }
    playback.settle();
    for client in 0..playback.nr_clients().min(64) as u32 {
        let _ = (playback.name(ClientId(client)), playback.state(ClientId(client)));
    }
    let _ = Timeline::read(lines());
    let _ = replay(lines());
});

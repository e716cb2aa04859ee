use super::*;

#[test]
fn v1_memory_is_parsed() {
    let text = "cache 1\nrss 2\ntotal_cache 40960\ntotal_rss 8192\ntotal_inactive_file 4096\ntotal_pgfault 7\n\
                total_pgmajfault 3\ntotal_swap 5\ntotal_dirty 11\ntotal_writeback 12\n\
                total_workingset_refault_anon 13\ntotal_workingset_refault_file 14\nhierarchical_memory_limit 1000\nhierarchical_memsw_limit 1500\n";
    let mut stats = Stats::default();
    memory_stat_v1(text, &mut stats);
    assert_eq!((stats.memory_rss, stats.page_faults, stats.major_page_faults), (8192, 7, 3));
    assert_eq!((stats.memory_limit, stats.swap_limit, stats.swap_usage), (Some(1000), Some(500), Some(5)));
    assert_eq!((stats.memory_file, stats.memory_inactive_file), (40960, 4096));
    assert_eq!((stats.memory_file_dirty, stats.memory_file_writeback), (11, 12));
    assert_eq!((stats.refaults_anon, stats.refaults_file), (13, 14));
    let mut unlimited = Stats::default();
    memory_stat_v1("hierarchical_memory_limit 9223372036854771712\n", &mut unlimited);
    assert_eq!(unlimited.memory_limit, None);
    memory_stat_v1("hierarchical_memory_limit 9223372036854710272\n", &mut unlimited);
    assert_eq!(unlimited.memory_limit, None, "no limit with pages of 64 KiB");
}

#[test]
fn v2_memory_is_parsed() {
    let mut stats = Stats::default();
    memory_stat_v2("anon 5\nfile 6\ninactive_file 2\npgfault 9\npgmajfault 1\nnonsense\nx -1\n", &mut stats);
    memory_stat_v2("file_dirty 3\nfile_writeback 4\npgscan 50\npgsteal 40\nworkingset_refault_file 7\n", &mut stats);
    assert_eq!((stats.memory_file_dirty, stats.memory_file_writeback), (3, 4));
    assert_eq!((stats.pages_scanned, stats.pages_stolen, stats.refaults_file), (50, 40, 7));
    assert_eq!((stats.memory_rss, stats.page_faults, stats.major_page_faults), (5, 9, 1));
    assert_eq!(stats.memory_inactive_file, 2);
}

#[test]
fn io_is_parsed() {
    let mut devices = Vec::new();
    let text = "8:0 Read 10\n8:0 Write 20\n8:0 Total 30\n8:16 Read 1\nTotal 31\nnonsense\n";
    io_v1(text, &mut devices, |io_is_parsed, operation, value| match operation {
        "Read" => io_is_parsed.read_bytes = value,
        "Write" => io_is_parsed.write_bytes = value,
        _ => {}
    });
    let device = DeviceIo { major: 8, minor: 0, read_bytes: 10, write_bytes: 20, ..DeviceIo::default() };
    assert_eq!(devices, [device, DeviceIo { minor: 16, read_bytes: 1, write_bytes: 0, ..device }]);
    let devices = io_v2("8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=2\n9:9\n");
    assert_eq!(devices[0], DeviceIo { reads: 1, writes: 2, ..device });
    assert_eq!(devices.len(), 3);
    assert_eq!(io_v2(""), []);
}

#[test]
fn pressure_is_parsed() {
    let text =
        "some avg10=8.70 avg60=8.50 avg300=26.20 total=7145066675\nfull avg10=0.00 avg60=0.00 avg300=0.01 total=2\n";
    let stalls = pressure(text).unwrap();
    assert_eq!(stalls.some, Stalls { avg10: 8.7, avg60: 8.5, avg300: 26.2, total_ns: 7_145_066_675_000 });
    assert_eq!((stalls.full.avg300, stalls.full.total_ns), (0.01, 2000));
    assert_eq!(pressure(""), None, "the file does not exist");
}

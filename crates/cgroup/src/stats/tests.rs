use super::*;

#[test]
fn v1_memory() {
    let text = "cache 1\nrss 2\ntotal_cache 40960\ntotal_rss 8192\ntotal_inactive_file 4096\ntotal_pgfault 7\n\
                total_pgmajfault 3\ntotal_swap 5\nhierarchical_memory_limit 1000\nhierarchical_memsw_limit 1500\n";
    let mut stats = Stats::default();
    memory_stat_v1(text, &mut stats);
    assert_eq!((stats.memory_rss, stats.page_faults, stats.major_page_faults), (8192, 7, 3));
    assert_eq!((stats.memory_limit, stats.swap_limit, stats.swap_usage), (Some(1000), Some(500), Some(5)));
    assert_eq!((stats.extra["file"], stats.extra["inactive_file"]), (40960, 4096));
    let mut unlimited = Stats::default();
    memory_stat_v1("hierarchical_memory_limit 9223372036854771712\n", &mut unlimited);
    assert_eq!(unlimited.memory_limit, None);
    memory_stat_v1("hierarchical_memory_limit 9223372036854710272\n", &mut unlimited);
    assert_eq!(unlimited.memory_limit, None, "pages of 64 KiB");
}

#[test]
fn v2_memory() {
    let mut stats = Stats::default();
    memory_stat_v2("anon 5\nfile 6\ninactive_file 2\npgfault 9\npgmajfault 1\nnonsense\nx -1\n", &mut stats);
    assert_eq!((stats.memory_rss, stats.page_faults, stats.major_page_faults), (5, 9, 1));
    assert_eq!(stats.extra["inactive_file"], 2);
}

#[test]
fn io() {
    assert_eq!(parse_io_v1("8:0 Read 10\n8:0 Write 20\n8:0 Total 30\n8:16 Read 1\nTotal 31\n"), (11, 20));
    assert_eq!(parse_io_v2("8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=1 wbytes=2\n"), (11, 22));
    assert_eq!(parse_io_v2(""), (0, 0));
}

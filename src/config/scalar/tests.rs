use super::*;

#[test]
fn sizes_are_exact_and_need_a_unit() {
    for (text, bytes) in [
        ("4GiB", 4 << 30),
        ("4Gi", 4 << 30),
        ("1.5GiB", 3 << 29),
        ("4GB", 4_000_000_000),
        ("4G", 4_000_000_000),
        ("512 MiB", 512 << 20),
        ("0B", 0),
    ] {
        assert_eq!(Size::read(text), Some(Size(bytes)), "{text}");
    }
    for text in ["4096", "4m", "GiB", "", "4e3", "-4GiB", "4GiBB", "4 X"] {
        assert_eq!(Size::read(text), None, "{text}");
    }
}

#[test]
fn durations_are_not_negative_and_whole_milliseconds() {
    assert_eq!(Duration::read("1h30m"), Some(Duration(Span::minutes(90))));
    assert_eq!(Duration::read("250ms"), Some(Duration(Span(250))));
    let day = Span::minutes(24 * 60);
    assert_eq!(Duration::read("1d"), Some(Duration(day)));
    assert_eq!(Duration::read("1 week"), Some(Duration(Span(day.0 * 7))));
    assert_eq!(Duration::read("1d12h"), Some(Duration(Span(day.0 * 3 / 2))));
    for text in [
        "10",
        "-5m",
        "1ns",
        "soon",
        "",
        "9999999999999h",
        "1 month",
        "-1d",
    ] {
        assert_eq!(Duration::read(text), None, "{text}");
    }
}

#[test]
fn ratios_and_prices_keep_their_digits() {
    assert_eq!(Ratio::read("0.5"), Some(Ratio(500)));
    assert_eq!(Ratio::read("1"), Some(Ratio(1000)));
    for text in ["1.5", "-0.1", "0.5m", "0.00001", "half"] {
        assert_eq!(Ratio::read(text), None, "{text}");
    }
    assert_eq!(Price::read("0.035"), Some(Price(35_000)));
    assert_eq!(Price(35_000).to_string(), "0.035");
}

#[test]
fn node_counts_and_savings_are_numbers_or_percentages() {
    assert_eq!(NodeCount::read("3"), Some(NodeCount(Share::Nodes(3))));
    assert_eq!(NodeCount::read("10%"), Some(NodeCount(Share::Percent(10))));
    for text in ["-1", "101%", "10 percent", "", "%", "1.5"] {
        assert_eq!(NodeCount::read(text), None, "{text}");
    }
    let saving = |permille, price| Some(MinSaving(Saving { permille, price }));
    assert_eq!(MinSaving::read("15%"), saving(150, 0));
    assert_eq!(MinSaving::read("12.5%"), saving(125, 0));
    assert_eq!(MinSaving::read("0.05"), saving(0, 50_000));
    for text in ["-1", "101%", "0.01%", "much", "", "%"] {
        assert_eq!(MinSaving::read(text), None, "{text}");
    }
}

#[test]
fn taints_have_a_key_and_an_effect() {
    let taint = TaintText::read("dedicated=gpu:NoSchedule").expect("a taint");
    assert_eq!(&*taint.0.value, "gpu");
    for text in [
        "dedicated",
        "dedicated:Never",
        "=x:NoSchedule",
        "a b:NoSchedule",
    ] {
        assert_eq!(TaintText::read(text), None, "{text}");
    }
}

fn survives<T: Scalar + PartialEq + fmt::Debug>(value: &T) {
    assert_eq!(T::read(&value.to_string()).as_ref(), Some(value), "{value}");
}

proptest::proptest! {
    #[test]
    fn what_is_written_reads_back(number in 0i64..1 << 52, small in 0i64..=1000) {
        survives(&Size(number));
        survives(&Duration(Span(number)));
        survives(&Cpu(number));
        survives(&Amount(number));
        survives(&Price(number % (1 << 40)));
        survives(&Ratio(small));
        survives(&Overcommit(100 + small));
        survives(&MinSaving(Saving { permille: small, price: 0 }));
        survives(&MinSaving(Saving { permille: 0, price: 1 + number % (1 << 40) }));
        survives(&NodeCount(Share::Nodes(u32::try_from(small).unwrap_or(0))));
        survives(&NodeCount(Share::Percent(u32::try_from(small % 101).unwrap_or(0))));
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,30}") {
        let _ = (Size::read(&text), Duration::read(&text), Cpu::read(&text), Price::read(&text));
        let _ = (VmidRange::read(&text), TaintText::read(&text), Ratio::read(&text));
        let _ = (NodeCount::read(&text), MinSaving::read(&text), Schedule::read(&text));
    }
}

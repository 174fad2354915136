from wane.runs import machine


def test_the_processor_is_named_with_its_numbers(tmp_path, monkeypatch):
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\nmodel name\t: another\n")
    monkeypatch.setattr(machine, "CPUINFO", path)
    assert machine.processor() == "AMD EPYC (family 26, model 2)"


def test_a_system_that_does_not_tell_has_a_name_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "none")
    monkeypatch.setattr(machine.platform, "processor", lambda: "")
    monkeypatch.setattr(machine.platform, "machine", lambda: "riscv64")
    assert machine.processor() == "riscv64"

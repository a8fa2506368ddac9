"""What a commit is planned to do, and does, to entries, remembered removals and limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respcache._entry import Entry, new_entry
from respcache._index import Index, Put, Ticket
from respcache._plan import REFUSED, SAME, STORED, Plan
from respcache._rules import Removal

NOW = 1_000_000_000.0
SIZE = 100


class Sized:
    """An entry as a reference that counts for some bytes."""

    def __init__(self, entry: Entry, size: int) -> None:
        self.entry = entry
        self.size = size


def make_index(memory: int = 8) -> Index:
    return Index(lambda _, reference: reference.entry, lambda reference: reference.size, memory)


_ids = iter(range(1, 10**9))


def make_entry(key: str, response: Any = "r", *, size: int = SIZE, **facts: Any) -> Entry:
    entry = new_entry(key, key, response, **{"id": str(next(_ids)), "stored_at": NOW, **facts})
    entry.size = size
    return entry


def make_plan(index: Index, now: float = NOW, **limits: int | None) -> Plan:
    return Plan(
        index,
        size=lambda entry: entry.size,
        now=now,
        limits=limits,
        birth=lambda: f"birth-{next(_ids)}",
    )


def carry_out(plan: Plan, index: Index) -> None:
    plan.carry_out(index, lambda entry: Sized(entry, entry.size))


def apply(
    index: Index,
    puts: Any = (),
    removals: Any = (),
    *,
    now: float = NOW,
    renew: bool = False,
    **limits: int | None,
) -> tuple[bool, list[str], int]:
    """Commit; return whether anything changed, the fates of *puts*, and what *removals* took."""
    plan = make_plan(index, now, **limits)
    gone = sum(plan.remove(removal) for removal in removals)
    fates = [plan.put(each if isinstance(each, Put) else Put(each), renew=renew) for each in puts]
    plan.enforce()
    carry_out(plan, index)
    return plan.is_change, fates, gone


def admits(index: Index, put: Put) -> bool:
    return make_plan(index).admits(put)


def ticket(index: Index, key: str) -> Ticket:
    entry = index.get(key)
    return Ticket(index.last_removal(), None if entry is None else entry.id, index.lives)


class TestPut:
    def test_new_entry_is_stored(self) -> None:
        index = make_index()
        entry = make_entry("a")

        assert apply(index, [entry]) == (True, [STORED], 0)
        assert index.get("a") is entry
        assert index.get("b") is None

    def test_same_again_while_fresh_changes_nothing(self) -> None:
        index = make_index()
        first = make_entry("a")
        apply(index, [first])

        assert apply(index, [make_entry("a")]) == (False, [SAME], 0)
        assert index.get("a") is first

    def test_same_again_renews_if_asked(self) -> None:
        index = make_index()
        apply(index, [make_entry("a"), make_entry("b")])
        again = make_entry("a")

        assert apply(index, [again], renew=True) == (True, [STORED], 0)
        assert index.get("a") is again
        assert list(index.items) == ["b", "a"]

    def test_same_again_after_its_ttl_is_stored(self) -> None:
        index = make_index()
        apply(index, [make_entry("a", ttl=60)])
        again = make_entry("a", ttl=60, stored_at=NOW + 60)

        assert apply(index, [again], now=NOW + 59.9)[1] == [SAME]
        assert apply(index, [again], now=NOW + 60)[1] == [STORED]

    def test_replaced_entry_goes_to_the_end(self) -> None:
        index = make_index()
        apply(index, [make_entry("a"), make_entry("b")])
        apply(index, [make_entry("a", "other")])

        assert list(index.items) == ["b", "a"]

    def test_yielding_put_leaves_what_is_there(self) -> None:
        index = make_index()
        first = make_entry("a")
        apply(index, [first])
        changed, fates, _ = apply(
            index, [Put(make_entry("a", "new"), yields=True), Put(make_entry("b"), yields=True)]
        )

        assert (changed, fates) == (True, [SAME, STORED])
        assert index.get("a") is first

    def test_second_try_of_one_put_is_stored_once(self) -> None:
        """E16: a commit that is done again after its lock file was removed under it."""
        index = make_index()
        put = Put(make_entry("a"), Ticket(None, None))
        apply(index, [put])

        assert apply(index, [put]) == (False, [STORED], 0)

    def test_put_of_one_batch_sees_those_before_it(self) -> None:
        index = make_index()
        one, other = make_entry("a", 1), make_entry("a", 2)

        assert apply(index, [one, other])[1] == [STORED, STORED]
        assert index.get("a") is other
        assert index.bytes == SIZE


class TestRemove:
    def fill(self) -> Index:
        index = make_index()
        apply(
            index,
            [
                make_entry("q//1//a", paths={"/repo/a.py": None}),
                make_entry("q//1//b", paths={"/repo": "tree"}),
                make_entry("q/=n/1//a", paths={"/Repo/A.py": None}),
                make_entry("q/=n/1//c"),
            ],
        )
        return index

    @pytest.mark.parametrize(
        ("removal", "left"),
        [
            pytest.param(
                {"keys": ["q//1//a", "no"]}, ["q//1//b", "q/=n/1//a", "q/=n/1//c"], id="keys"
            ),
            pytest.param({"paths": ["/repo/a.py"]}, ["q/=n/1//c"], id="path-in-all-scopes"),
            pytest.param({"paths": ["/"]}, ["q/=n/1//c"], id="folder-above"),
            pytest.param(
                {"paths": ["/repo/new"]}, ["q//1//a", "q/=n/1//a", "q/=n/1//c"], id="below-a-tree"
            ),
            pytest.param({"scope": "q//"}, ["q/=n/1//a", "q/=n/1//c"], id="scope"),
            pytest.param({"scope": ""}, [], id="whole-scope"),
            pytest.param({"everything": True}, [], id="everything"),
            pytest.param(
                {"keys": ["no"]},
                ["q//1//a", "q//1//b", "q/=n/1//a", "q/=n/1//c"],
                id="unknown-key",
            ),
        ],
    )
    def test_takes_what_it_touches(self, removal: dict[str, Any], left: list[str]) -> None:
        index = self.fill()
        made = Removal("1", **removal)
        touched = index.touched_by(made)
        changed, _, gone = apply(index, (), [made])

        assert list(index.items) == left
        assert gone == len(touched) == 4 - len(left)
        assert changed
        assert index.bytes == SIZE * len(left)

    def test_is_remembered_also_if_it_took_nothing(self) -> None:
        """E06: work under way must be checked against it."""
        index = make_index()

        assert apply(index, (), [Removal("1", keys=["k"])]) == (True, [], 0)
        assert index.last_removal() == "1"

    def test_done_twice_counts_once(self) -> None:
        index = make_index()
        apply(index, [make_entry("a")])
        removal = Removal("1", keys=["a"])
        apply(index, (), [removal])
        later = make_entry("a", "later")
        apply(index, [later])

        assert apply(index, (), [removal]) == (False, [], 0)
        assert index.get("a") is later

    def test_goes_before_the_puts_of_the_same_commit(self) -> None:
        index = make_index()
        apply(index, [make_entry("a", "old")])
        new = make_entry("a", "new")

        assert apply(index, [new], [Removal("1", scope="")]) == (True, [STORED], 1)
        assert index.get("a") is new

    def test_first_commit_starts_a_memory(self) -> None:
        index = make_index()

        assert index.last_removal() is None

        apply(index, [make_entry("a")])
        first = index.last_removal()
        apply(index, [make_entry("b")])

        assert first is not None
        assert index.last_removal() == first


class TestAdmits:
    """The guard of results that were computed while something changed."""

    PATHS = {"/repo/a.py": None}  # noqa: RUF012

    @pytest.mark.parametrize(
        "removal",
        [
            pytest.param({"keys": ["q//1//a"]}, id="forget"),
            pytest.param({"scope": "q//"}, id="clear"),
            pytest.param({"paths": ["/repo/a.py"]}, id="invalidate"),
            pytest.param({"paths": ["/repo"]}, id="invalidate-a-folder"),
            pytest.param({"everything": True}, id="everything"),
        ],
    )
    def test_refuses_what_a_later_removal_touches(self, removal: dict[str, Any]) -> None:
        """E06 R16"""
        index = make_index()
        apply(index, [make_entry("other")])
        before = ticket(index, "q//1//a")
        apply(index, (), [Removal("1", **removal)])
        put = Put(make_entry("q//1//a", paths=self.PATHS), before)

        assert not admits(index, put)
        assert apply(index, [put]) == (False, [REFUSED], 0)
        assert index.get("q//1//a") is None

    @pytest.mark.parametrize(
        "removal",
        [
            pytest.param({"keys": ["q//1//b"]}, id="another-key"),
            pytest.param({"scope": "q/=n/"}, id="another-namespace"),
            pytest.param({"paths": ["/repo/b.py"]}, id="another-path"),
            pytest.param({"paths": ["/repo/a.py/x"]}, id="below-a-plain-path"),
        ],
    )
    def test_admits_what_a_later_removal_does_not_touch(self, removal: dict[str, Any]) -> None:
        index = make_index()
        apply(index, [make_entry("other")])
        put = Put(make_entry("q//1//a", paths=self.PATHS), ticket(index, "q//1//a"))
        apply(index, (), [Removal("1", **removal)])

        assert apply(index, [put])[1] == [STORED]

    def test_admits_what_began_after_the_removal(self) -> None:
        index = make_index()
        apply(index, (), [Removal("1", everything=True)])

        assert admits(index, Put(make_entry("a"), ticket(index, "a")))

    def test_any_of_several_later_removals_counts(self) -> None:
        index = make_index()
        before = ticket(index, "a")
        for number in range(5):
            apply(index, (), [Removal(str(number), keys=["a" if number == 2 else "b"])])

        assert not admits(index, Put(make_entry("a"), before))

    def test_refuses_once_its_removal_is_no_longer_remembered(self) -> None:
        """E02: what happened since can't be known any more."""
        index = make_index(memory=3)
        apply(index, (), [Removal("seen", keys=["z"])])
        before = ticket(index, "a")
        for number in range(2):
            apply(index, (), [Removal(str(number), keys=["b"])])

        assert admits(index, Put(make_entry("a"), before))

        apply(index, (), [Removal("last", keys=["b"])])

        assert not admits(index, Put(make_entry("a"), before))

    def test_refuses_a_ticket_of_another_life_of_the_file(self) -> None:
        """E02: deleted, restored from a backup: ids are random, so none can be taken for another."""
        old, new = make_index(), make_index()
        apply(old, (), [Removal("1", keys=["z"])])
        apply(new, (), [Removal("2", keys=["z"])])

        assert not admits(new, Put(make_entry("a"), ticket(old, "a")))

    def test_ticket_of_nothing_holds_while_the_memory_is_complete(self) -> None:
        index = make_index(memory=3)
        nothing = Ticket(None, None)

        assert admits(index, Put(make_entry("a"), nothing))

        apply(index, [make_entry("b")])
        apply(index, (), [Removal("1", keys=["b"])])

        assert admits(index, Put(make_entry("a"), nothing))
        assert not admits(index, Put(make_entry("b"), nothing))

        apply(index, (), [Removal("2", keys=["b"]), Removal("3", keys=["b"])])

        assert not index.is_complete
        assert not admits(index, Put(make_entry("a"), nothing))

    def test_ticket_of_nothing_does_not_outlive_the_file(self) -> None:
        """E02: made, cleared, deleted and made again, all while it was computed."""
        index = make_index()
        nothing = Ticket(None, None, lives=0)
        index.lives = 1

        assert not admits(index, Put(make_entry("a"), nothing))
        assert admits(index, Put(make_entry("a"), Ticket(None, None, lives=1)))

    def test_refuses_if_the_key_got_a_newer_entry(self) -> None:
        """E03"""
        index = make_index()
        before = ticket(index, "a")
        apply(index, [make_entry("a", "newer")])

        assert not admits(index, Put(make_entry("a", "older"), before))
        assert admits(index, Put(make_entry("a", "newest"), ticket(index, "a")))

    def test_refuses_if_the_entry_was_replaced_meanwhile(self) -> None:
        """E03"""
        index = make_index()
        apply(index, [make_entry("a", "old")])
        before = ticket(index, "a")
        apply(index, [make_entry("a", "newer")])

        assert not admits(index, Put(make_entry("a", "mine"), before))

    def test_limits_and_age_do_not_refuse(self) -> None:
        """Only removals guard: what a limit took away was not wrong."""
        index = make_index()
        apply(index, [make_entry("a", ttl=1)])
        before = ticket(index, "a")
        apply(index, [make_entry("b")], now=NOW + 1, max_entries=1)

        assert list(index.items) == ["b"]
        assert admits(index, Put(make_entry("a"), before))

    def test_removal_that_was_pending_at_the_beginning_does_not_refuse(self) -> None:
        index = make_index()
        before = ticket(index, "a")
        before.hidden = frozenset(["1"])
        apply(index, (), [Removal("1", keys=["a"])])

        assert admits(index, Put(make_entry("a"), before))

        apply(index, (), [Removal("2", keys=["a"])])

        assert not admits(index, Put(make_entry("a"), before))

    def test_put_without_a_ticket_is_always_admitted(self) -> None:
        index = make_index()
        apply(index, [make_entry("a", "old")])
        apply(index, (), [Removal("1", everything=True)])

        assert apply(index, [make_entry("a", "new")])[1] == [STORED]


class TestLimits:
    def test_oldest_commit_goes_first(self) -> None:
        """R33"""
        index = make_index()
        for key in "abcde":
            apply(index, [make_entry(key)], max_entries=3)

        assert list(index.items) == ["c", "d", "e"]

    def test_never_more_than_the_limit_while_nothing_expires(self) -> None:
        """R33: 1,000 stores of entries that live for a day."""
        index = make_index()
        for number in range(1000):
            apply(index, [make_entry(str(number), ttl=86_400)], max_entries=100)
            assert len(index.items) <= 100

        assert list(index.items) == [str(number) for number in range(900, 1000)]

    def test_reading_does_not_save_an_entry(self) -> None:
        index = make_index()
        apply(index, [make_entry("a"), make_entry("b")], max_entries=2)
        index.get("a")
        apply(index, [make_entry("c")], max_entries=2)

        assert list(index.items) == ["b", "c"]

    def test_large_entry_evicts_as_many_as_needed(self) -> None:
        """R33"""
        index = make_index()
        for key in "abcdefghij":
            apply(index, [make_entry(key, size=100)], max_bytes=1000)
        apply(index, [make_entry("large", size=850)], max_bytes=1000)

        assert list(index.items) == ["j", "large"]
        assert index.bytes == 950

    def test_entry_of_just_the_limit_is_kept_alone(self) -> None:
        index = make_index()
        apply(index, [make_entry("a")], max_bytes=1000)
        apply(index, [make_entry("large", size=1000)], max_bytes=1000)

        assert list(index.items) == ["large"]

    def test_entry_over_the_limit_evicts_nobody(self) -> None:
        """R33"""
        index = make_index()
        apply(index, [make_entry("a")], max_bytes=1000)

        assert apply(index, [make_entry("large", size=1001)], max_bytes=1000) == (
            False,
            [REFUSED],
            0,
        )
        assert list(index.items) == ["a"]

    def test_smallest_limit_among_those_who_store_wins(self) -> None:
        """E15: a limit belongs to the file."""
        index = make_index()
        apply(index, [make_entry("a")], max_entries=2, max_bytes=None)
        for key in "bcd":
            apply(index, [make_entry(key)], max_entries=100, max_bytes=10_000)

        assert list(index.items) == ["c", "d"]
        assert index.limits == {"max_entries": 2, "max_bytes": 10_000}

    def test_limit_of_one_who_stores_nothing_evicts_nobody(self) -> None:
        """E15"""
        index = make_index()
        apply(index, [make_entry("a"), make_entry("b")], max_entries=10)
        apply(index, [make_entry("b")], max_entries=1)
        apply(index, (), [Removal("1", keys=["z"])], max_entries=1)

        assert list(index.items) == ["a", "b"]
        assert index.limits == {"max_entries": 10}

    def test_no_limit_is_no_limit(self) -> None:
        index = make_index()
        apply(index, [make_entry(str(n)) for n in range(200)], max_entries=None, max_bytes=None)

        assert len(index.items) == 200
        assert index.limits == {}

    def test_expired_entries_are_swept_by_a_store(self) -> None:
        """R33: also those that nobody reads again."""
        index = make_index()
        apply(index, [make_entry("a", ttl=60), make_entry("b", ttl=61), make_entry("c")])
        apply(index, [make_entry("d")], now=NOW + 60)

        assert list(index.items) == ["b", "c", "d"]
        assert index.bytes == 3 * SIZE

    def test_expired_entries_go_before_old_ones(self) -> None:
        index = make_index()
        apply(index, [make_entry("old"), make_entry("short", ttl=60)], max_entries=2)
        apply(index, [make_entry("new")], now=NOW + 60, max_entries=2)

        assert list(index.items) == ["old", "new"]

    def test_byte_count_is_right_after_overwriting_and_removing(self) -> None:
        """R33"""
        index = make_index()
        apply(index, [make_entry("a", 1, size=300), make_entry("b", size=50)])
        apply(index, [make_entry("a", 2, size=20)])

        assert index.bytes == 70

        apply(index, (), [Removal("1", keys=["b"])])

        assert index.bytes == 20

        index.drop("a")
        index.drop("a")

        assert index.bytes == 0


class TestMeasure:
    def test_counts_what_has_not_expired_under_a_scope(self) -> None:
        index = make_index()
        apply(index, [make_entry("x/a", ttl=60), make_entry("x/b", size=7), make_entry("y/c")])

        assert index.measure("x/", NOW + 59) == (2, SIZE + 7)
        assert index.measure("x/", NOW + 60) == (1, 7)
        assert index.measure("", NOW + 60) == (2, SIZE + 7)

    @given(
        steps=st.lists(
            st.tuples(
                st.sampled_from("abcd"),
                st.none() | st.integers(1, 50),
                st.integers(0, 100),
                st.booleans(),
            ),
            max_size=20,
        )
    )
    def test_what_has_expired_depends_on_the_time_alone(self, steps: Any) -> None:
        """R34: also if the time that is asked for goes back, as a clock that is corrected does."""
        index = make_index()
        deadlines: dict[str, int] = {}
        for key, deadline, now, drops in steps:
            if drops:
                index.drop(key)
                deadlines.pop(key, None)
            else:
                index.add(key, Sized(make_entry(key), SIZE), SIZE, deadline)
                deadlines.pop(key, None)
                if deadline is not None:
                    deadlines[key] = deadline

            assert sorted(index.expired(now)) == sorted(k for k, d in deadlines.items() if d <= now)
            assert sorted(index.copy().expired(now)) == sorted(index.expired(now))


class TestModel:
    @given(
        steps=st.lists(
            st.tuples(
                st.sampled_from("abcdef"),
                st.integers(0, 2),
                st.integers(1, 60),
                st.sampled_from(["put", "renew", "forget", "clear", "tick"]),
                st.none() | st.integers(1, 4),
                st.none() | st.integers(20, 150),
            ),
            max_size=30,
        )
    )
    def test_agrees_with_a_plain_list(self, steps: Any) -> None:
        """R33: order, limits and bytes, whatever the order of the steps."""
        index = make_index()
        model: list[tuple[str, int, int]] = []
        most: int | None = None
        room: int | None = None
        for number, (key, response, size, what, max_entries, max_bytes) in enumerate(steps):
            if what in ("put", "renew"):
                entry = make_entry(key, response, size=size)
                limits = [limit for limit in (most, max_entries) if limit is not None]
                rooms = [limit for limit in (room, max_bytes) if limit is not None]
                fits = not rooms or size <= min(rooms)
                known = [each for each in model if each[0] == key]
                if not fits:
                    expected = REFUSED
                elif known and known[0][1] == response and what == "put":
                    expected = SAME
                else:
                    expected = STORED
                    model = [each for each in model if each[0] != key] + [(key, response, size)]
                    most, room = min(limits, default=None), min(rooms, default=None)
                    while (most is not None and len(model) > most) or (
                        room is not None and sum(each[2] for each in model) > room
                    ):
                        model.pop(0)
                _, fates, _ = apply(
                    index,
                    [entry],
                    renew=what == "renew",
                    max_entries=max_entries,
                    max_bytes=max_bytes,
                )
                assert fates == [expected]
            elif what == "forget":
                apply(index, (), [Removal(f"r{number}", keys=[key])])
                model = [each for each in model if each[0] != key]
            elif what == "clear":
                apply(index, (), [Removal(f"r{number}", scope="")])
                model = []

            assert list(index.items) == [each[0] for each in model]
            assert [index.get(k).response for k in index.items] == [each[1] for each in model]  # type: ignore[union-attr]
            assert index.bytes == sum(each[2] for each in model)


class TestPlan:
    """A plan is decided in full before anything is written."""

    def test_nothing_changes_before_it_is_carried_out(self) -> None:
        index = make_index()
        apply(index, [make_entry("a"), make_entry("b", ttl=60)], max_entries=5)
        before = (dict(index.items), index.bytes, list(index.removals), dict(index.limits))
        plan = make_plan(index, NOW + 60, max_entries=1)
        plan.remove(Removal("1", keys=["a"]))
        plan.put(Put(make_entry("c")))
        plan.enforce()

        assert (index.items, index.bytes, index.removals, index.limits) == before

        carry_out(plan, index)

        assert list(index.items) == ["c"]
        assert index.limits == {"max_entries": 1}

    def test_sees_its_own_steps(self) -> None:
        index = make_index()
        apply(index, [make_entry("a"), make_entry("b")])
        plan = make_plan(index)
        new = make_entry("c")
        plan.remove(Removal("1", keys=["a"]))
        plan.put(Put(new))

        assert [plan.get(key) for key in "abcd"] == [None, index.get("b"), new, None]

    def test_removal_takes_what_it_has_put_before(self) -> None:
        index = make_index()
        plan = make_plan(index)
        plan.put(Put(make_entry("a", paths={"/a": None})))

        assert plan.remove(Removal("1", paths=["/a"])) == 1

        plan.enforce()
        carry_out(plan, index)

        assert index.items == {}
        assert index.bytes == 0

    def test_removal_of_its_own_guards_its_later_puts(self) -> None:
        """E03: what is pending is held against the evictions that are committed with it."""
        index = make_index()
        apply(index, [make_entry("other")])
        put = Put(make_entry("a"), ticket(index, "a"))

        assert apply(index, [put], [Removal("1", keys=["a"])]) == (True, [REFUSED], 0)

    def test_nothing_to_do_is_no_change(self) -> None:
        index = make_index()
        apply(index, [make_entry("a")])
        plan = make_plan(index, max_entries=1)
        plan.put(Put(make_entry("a")))
        plan.discard([make_entry("a"), make_entry("z")])
        plan.enforce()

        assert not plan.is_change

    def test_discards_just_the_entries_that_are_still_there(self) -> None:
        index = make_index()
        old, stays = make_entry("a", "old"), make_entry("b")
        apply(index, [old, stays])
        apply(index, [make_entry("a", "new")])
        plan = make_plan(index)

        assert plan.discard([old, stays]) == 1

        carry_out(plan, index)

        assert list(index.items) == ["a"]
        assert index.bytes == SIZE

    def test_batch_beyond_the_limit_keeps_its_last(self) -> None:
        """R33"""
        index = make_index()
        apply(index, [make_entry("old")])
        apply(index, [make_entry(key) for key in "abcde"], max_entries=2)

        assert list(index.items) == ["d", "e"]
        assert index.bytes == 2 * SIZE

    def test_replaced_entry_that_goes_again_by_a_limit_is_told_as_evicted(self) -> None:
        """R33: a log would bring back the older answer that was replaced."""
        index = make_index()
        apply(index, [make_entry("a", "old")], max_entries=1)
        plan = make_plan(index, max_entries=1)
        plan.put(Put(make_entry("a", "new")))
        plan.put(Put(make_entry("b")))
        plan.enforce()

        assert list(plan.adds) == ["b"]
        assert list(plan.evictions) == ["a"]

    @settings(max_examples=400)
    @given(
        steps=st.lists(
            st.tuples(
                st.sampled_from(["put"] * 6 + ["forget", "invalidate", "clear", "discard"]),
                st.sampled_from("abc"),
                st.integers(0, 2),
                st.sampled_from([None, "/a", "/b"]),
            ),
            max_size=8,
        ),
        before=st.lists(
            st.tuples(st.sampled_from("abc"), st.sampled_from([None, "/a", "/b"])), max_size=3
        ),
        max_entries=st.none() | st.integers(1, 3),
    )
    def test_whatever_goes_is_told(self, steps: Any, before: Any, max_entries: Any) -> None:
        """By a removal that touches it, an entry that replaces it, or as evicted: a log of
        these alone must end where the plan ends."""
        index = make_index()
        apply(index, [make_entry(k, paths=path and {path: None}) for k, path in before])
        plan = make_plan(index, max_entries=max_entries)
        for number, (what, key, response, path) in enumerate(steps):
            if what == "put":
                entry = make_entry(key, response, paths=path and {path: None})
                plan.put(Put(entry))
            elif what == "discard":
                entry = index.get(key)
                plan.discard([entry] if entry is not None else [])
            elif what == "forget":
                plan.remove(Removal(str(number), keys=[key]))
            elif what == "clear":
                plan.remove(Removal(str(number), scope=""))
            elif path is not None:
                plan.remove(Removal(str(number), paths=[path]))
        plan.enforce()
        replayed = index.copy()
        for removal in plan.removals:
            for key in replayed.touched_by(removal):
                replayed.drop(key)
        for key in plan.evictions:
            replayed.drop(key)
        for key, entry in plan.adds.items():
            replayed.add(key, Sized(entry, entry.size), entry.size)
        carry_out(plan, index)

        assert {k: index.get(k).id for k in index.items} == {  # type: ignore[union-attr]
            k: replayed.get(k).id  # type: ignore[union-attr]
            for k in replayed.items
        }
        assert index.bytes == replayed.bytes

    def test_without_a_memory_nothing_guards(self) -> None:
        """E14: a flat file has no place for commits."""
        index = make_index(memory=0)
        before = ticket(index, "a")
        apply(index, (), [Removal("1", everything=True)])

        assert index.removals == []
        assert admits(index, Put(make_entry("a"), before))


class TestCopy:
    def test_changes_of_a_copy_do_not_show_in_the_original(self) -> None:
        """A reader goes on with the one while a writer changes the other."""
        index = make_index(memory=2)
        apply(index, [make_entry("a", paths={"/a": None}, ttl=60)], max_entries=9)
        before = (list(index.items), index.bytes, index.last_removal(), dict(index.limits))
        copy = index.copy()
        apply(copy, [make_entry("b")], [Removal("1", paths=["/a"])], max_entries=1)
        apply(copy, (), [Removal("2", everything=True), Removal("3", everything=True)])

        assert (list(index.items), index.bytes, index.last_removal(), dict(index.limits)) == before
        assert index.is_complete
        assert index.touched_by(Removal("4", paths=["/a"])) == ["a"]
        assert index.expired(NOW + 60) == ["a"]
        assert not copy.is_complete

    def test_copy_knows_all_that_the_original_knew(self) -> None:
        index = make_index()
        apply(index, [make_entry("a", paths={"/a": None}, ttl=60)], max_entries=9)
        index.lives = 3
        copy = index.copy()

        assert copy.touched_by(Removal("4", paths=["/a"])) == ["a"]
        assert copy.expired(NOW + 60) == ["a"]
        assert copy.limits == {"max_entries": 9}
        assert (copy.lives, copy.bytes, copy.last_removal()) == (3, SIZE, index.last_removal())

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A model of an arena's ticks (docs/memory-ordering.md): ranks enter, fold and leave in the order
 * that engine/algo/arena.c keeps to, in every interleaving. What it checks: nobody reads a slot or
 * a result of another tick than the one that it wants, nobody writes what another is reading, and all
 * ranks get to the end. Data is read in two steps, so that a write can come in between.
 *
 * -DDEPTH=3 must fail: the test sees to that.
 */
#ifndef DEPTH
#define DEPTH 4
#endif
#ifndef RANKS
#define RANKS 2
#endif
#define TICKS 7
#define AT(rank, tick) ((rank)*DEPTH + (tick) % DEPTH)

byte header[RANKS * DEPTH]; /* tick + 1 */
byte result_tick[RANKS * DEPTH];
byte slot[RANKS * DEPTH]; /* tick + 1, as data */
byte result[RANKS * DEPTH];
byte slot_readers[RANKS * DEPTH];
byte result_readers[RANKS * DEPTH];
byte finished;

inline read_slot(q, t)
{
	slot_readers[AT(q, t)]++;
	assert(slot[AT(q, t)] == t + 1);
	slot_readers[AT(q, t)]--
}

inline read_result(q, t)
{
	result_readers[AT(q, t)]++;
	assert(result[AT(q, t)] == t + 1);
	result_readers[AT(q, t)]--
}

inline all_entered(t)
{
	q = 0;
	do
	:: q < RANKS ->
		(q == me || header[AT(q, t)] == t + 1);
		q++
	:: else -> break
	od
}

proctype rank(byte me)
{
	byte entered = 0, folded = 0, left = 0, q;

	do
	:: entered < TICKS && entered <= folded + 1 && entered <= left + 2 ->
		if
		:: entered >= 2 -> all_entered(entered - 2)
		:: else
		fi;
		assert(slot_readers[AT(me, entered)] == 0);
		slot[AT(me, entered)] = entered + 1;
		header[AT(me, entered)] = entered + 1;
		entered++
	:: folded < entered ->
		all_entered(folded);
		q = 0;
		do
		:: q < RANKS ->
			if
			:: q != me -> read_slot(q, folded)
			:: else
			fi;
			q++
		:: else -> break
		od;
		assert(result_readers[AT(me, folded)] == 0);
		result[AT(me, folded)] = folded + 1;
		result_tick[AT(me, folded)] = folded + 1;
		folded++
	:: left < folded ->
		q = 0;
		do
		:: q < RANKS ->
			if
			:: q != me ->
				result_tick[AT(q, left)] == left + 1;
				read_result(q, left)
			:: else
			fi;
			q++
		:: else -> break
		od;
		left++
	:: left == TICKS -> break
	od;
	finished++
}

init
{
	byte r = 0;

	atomic {
		do
		:: r < RANKS ->
			run rank(r);
			r++
		:: else -> break
		od
	}
	finished == RANKS
}

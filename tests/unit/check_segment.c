/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wire's codec: the layout is the documented one, byte for byte; what is encoded is decoded;
 * and whatever arrives is answered without reading or writing outside of what was lent.
 *
 * LLVMFuzzerTestOneInput() is the fuzz entry. Here it runs over random inputs; built with
 * -fsanitize=fuzzer -DRF_FUZZ it is a libFuzzer target.
 */
#include "engine/segment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static void require(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "check_segment: does not hold: %s\n", what);
	abort();
}
#define REQUIRE(x) require(x, #x)

/* A header that is accepted is encoded to the same bytes again, and keeps to its type's limit. */
static void fuzz_header(const uint8_t *input, size_t size)
{
	uint8_t header[RF_SEGMENT_HEADER_BYTES] = {RF_WIRE_VERSION}, again[sizeof(header)];
	struct rf_segment segment;
	int status;

	memcpy(header, input, size < sizeof(header) ? size : sizeof(header));
	memset(&segment, 0x5a, sizeof(segment));
	status = rf_segment_decode(header, &segment);
	if (status == RF_ERR_VERSION) {
		REQUIRE(segment.version == header[0] && segment.type == 0x5a);
		return;
	}
	if (status == RF_ERR_PROTOCOL) {
		REQUIRE(segment.version == 0x5a);
		return;
	}
	REQUIRE(status == RF_OK);
	REQUIRE(segment.type > RF_SEGMENT_NONE && segment.type < RF_SEGMENT_TYPE_COUNT);
	REQUIRE(segment.bytes <= 1u << 30);
	rf_segment_encode(&segment, again);
	REQUIRE(!memcmp(header, again, sizeof(header)));
}

static void fuzz_fingerprint(const uint8_t *input, size_t size)
{
	struct rf_fingerprint f;
	uint8_t bytes[24] = {0}, again[24];
	char text[RF_FINGERPRINT_TEXT];

	memcpy(bytes, input, size < sizeof(bytes) ? size : sizeof(bytes));
	rf_fingerprint_decode(bytes, &f);
	REQUIRE(rf_fingerprint_equal(&f, &f));
	rf_fingerprint_encode(&f, again);
	REQUIRE(!memcmp(bytes, again, sizeof(bytes)));
	memset(text, 'x', sizeof(text));
	REQUIRE(rf_fingerprint_format(&f, text) == text);
	REQUIRE(strlen(text) > 0 && strlen(text) < sizeof(text));
}

/* The input is a program of gets over a copy of exactly its size. */
static void fuzz_cursor(const uint8_t *input, size_t size)
{
	uint8_t *copy = malloc(size ? size : 1), bytes[40];
	struct rf_cursor c = {copy, copy + size, false};
	char text[24];

	REQUIRE(copy != NULL);
	if (size)
		memcpy(copy, input, size);
	for (size_t i = 0; i < size; i++) {
		bool failed = c.failed;

		switch (input[i] % 6) {
		case 0:
			rf_get_u8(&c);
			break;
		case 1:
			rf_get_u16(&c);
			break;
		case 2:
			rf_get_u32(&c);
			break;
		case 3:
			rf_get_u64(&c);
			break;
		case 4:
			rf_get_bytes(&c, bytes, input[i] % (sizeof(bytes) + 1));
			break;
		default:
			rf_get_string(&c, text, input[i] % (sizeof(text) + 1));
		}
		REQUIRE(c.at >= copy && c.at <= c.end);
		REQUIRE(!failed || c.failed);
	}
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	fuzz_header(input, size);
	fuzz_fingerprint(input, size);
	fuzz_cursor(input, size);
	return 0;
}

#ifndef RF_FUZZ

static const struct rf_segment example = {
	.version = RF_WIRE_VERSION,
	.type = RF_SEGMENT_DATA,
	.stage = 0x18,
	.flags = 0x19,
	.channel = 0x1b1a,
	.epoch = 0x07060504,
	.comm = 0x0f0e0d0c0b0a0908,
	.seq = 0x1716151413121110,
	.chunk = 0x1f1e1d1c,
	.bytes = 0x00222120,
	.eager_freed = 0x27262524,
	.fingerprint = {0x28, 0x29, 0x2a, 0x2b, 0x2f2e2d2c, 0x3736353433323130, 0x3f3e3d3c3b3a3938},
};

/* Every byte of the example is its own offset, but for those that the layout fixes. */
static void layout_is_the_documented_one(void)
{
	uint8_t header[RF_SEGMENT_HEADER_BYTES], expected[RF_SEGMENT_HEADER_BYTES];
	struct rf_segment decoded;

	for (int i = 0; i < RF_SEGMENT_HEADER_BYTES; i++)
		expected[i] = (uint8_t)i;
	expected[0] = 1;
	expected[1] = RF_SEGMENT_DATA;
	expected[2] = 64;
	expected[3] = 0;
	expected[35] = 0;
	rf_segment_encode(&example, header);
	REQUIRE(!memcmp(header, expected, sizeof(header)));
	REQUIRE(rf_segment_decode(header, &decoded) == RF_OK);
	REQUIRE(decoded.type == example.type && decoded.stage == example.stage);
	REQUIRE(decoded.flags == example.flags && decoded.channel == example.channel);
	REQUIRE(decoded.epoch == example.epoch && decoded.comm == example.comm);
	REQUIRE(decoded.seq == example.seq && decoded.chunk == example.chunk);
	REQUIRE(decoded.bytes == example.bytes && decoded.eager_freed == example.eager_freed);
	REQUIRE(rf_fingerprint_equal(&decoded.fingerprint, &example.fingerprint));
}

static void bad_headers_are_refused(void)
{
	static const struct {
		unsigned offset;
		uint8_t value;
		int status;
	} cases[] = {
		{0, 0, RF_ERR_VERSION},
		{0, RF_WIRE_VERSION + 1, RF_ERR_VERSION},
		{1, RF_SEGMENT_NONE, RF_ERR_PROTOCOL},
		{1, RF_SEGMENT_TYPE_COUNT, RF_ERR_PROTOCOL},
		{1, 255, RF_ERR_PROTOCOL},
		{2, 63, RF_ERR_PROTOCOL},
		{3, 1, RF_ERR_PROTOCOL},
		{35, 4, RF_ERR_PROTOCOL}, /* 64 MiB and some */
		{35, 0xff, RF_ERR_PROTOCOL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t header[RF_SEGMENT_HEADER_BYTES];
		struct rf_segment decoded;

		rf_segment_encode(&example, header);
		header[cases[i].offset] = cases[i].value;
		REQUIRE(rf_segment_decode(header, &decoded) == cases[i].status);
	}
}

static void each_type_has_its_name_and_its_limit(void)
{
	static const struct {
		const char *name;
		uint8_t type;
		uint32_t most;
	} types[] = {
#define X(NAME, name, lane, most) {#name, RF_SEGMENT_##NAME, most},
		RF_SEGMENT_LIST(X)
#undef X
	};
	struct rf_segment segment = example, decoded;
	uint8_t header[RF_SEGMENT_HEADER_BYTES];

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		REQUIRE(!strcmp(rf_segment_name(types[i].type), types[i].name));
		segment.type = types[i].type;
		segment.bytes = types[i].most;
		rf_segment_encode(&segment, header);
		REQUIRE(rf_segment_decode(header, &decoded) == RF_OK);
		REQUIRE(decoded.bytes == types[i].most);
		segment.bytes++;
		rf_segment_encode(&segment, header);
		REQUIRE(rf_segment_decode(header, &decoded) == RF_ERR_PROTOCOL);
	}
	REQUIRE(!strcmp(rf_segment_name(RF_SEGMENT_TYPE_COUNT), "unknown"));
	REQUIRE(!strcmp(rf_segment_name((enum rf_segment_type) - 1), "unknown"));
}

static void fingerprints_differ_in_each_field(void)
{
	const struct rf_fingerprint a = {1, 2, 3, 4, 5, 6, 7};
	uint8_t bytes[24];
	struct rf_fingerprint b;

	for (unsigned i = 0; i < sizeof(bytes); i++) {
		rf_fingerprint_encode(&a, bytes);
		bytes[i] ^= 0x80;
		rf_fingerprint_decode(bytes, &b);
		REQUIRE(!rf_fingerprint_equal(&a, &b));
		REQUIRE(!rf_fingerprint_equal(&b, &a));
	}
}

static void fingerprints_read_as_calls(void)
{
	static const struct {
		struct rf_fingerprint f;
		const char *text;
	} cases[] = {
		{{RF_ALLREDUCE, RF_FLOAT32, RF_SUM, 0, 0, 12, 9}, "allreduce of 12 float32, sum"},
		{{RF_ALLREDUCE, RF_BFLOAT16, RF_AVG, 0x11, 0, UINT64_MAX, 9},
		 "allreduce of 18446744073709551615 bfloat16, avg, tree order, float32 partials"},
		{{RF_REDUCE, RF_INT8, RF_MAX, 0, 3, 0, 9}, "reduce of 0 int8, max, root 3"},
		{{RF_BROADCAST, RF_FLOAT64, RF_SUM, 0, UINT32_MAX, 1, 9},
		 "broadcast of 1 float64, root 4294967295"},
		{{RF_REDUCE_SCATTER, RF_UINT64, RF_MIN, 0, 0, 8, 9},
		 "reduce_scatter of 8 uint64, min"},
		{{RF_ALLGATHER, RF_BOOL, 0, 0, 0, 7, 9}, "allgather of 7 bool"},
		{{RF_BARRIER, 0, 0, 0, 0, 0, 9}, "barrier"},
		{{200, 201, 202, 0, 0, 3, 9}, "? of 3 ?"},
	};
	char text[RF_FINGERPRINT_TEXT];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		REQUIRE(!strcmp(rf_fingerprint_format(&cases[i].f, text), cases[i].text));
}

static void put_all(struct rf_cursor *c)
{
	rf_put_u8(c, 0x12);
	rf_put_u16(c, 0x3456);
	rf_put_u32(c, 0x789abcde);
	rf_put_u64(c, 0x0123456789abcdef);
	rf_put_string(c, "ring");
	rf_put_bytes(c, "fold", 4);
	rf_put_bytes(c, NULL, 0);
}
enum { PUT_ALL_BYTES = 1 + 2 + 4 + 8 + 2 + 4 + 4 };

static void cursor_reads_what_it_wrote(void)
{
	static const uint8_t expected[PUT_ALL_BYTES] =
		"\x12\x56\x34\xde\xbc\x9a\x78\xef\xcd\xab\x89\x67\x45\x23\x01\x04\0ringfold";
	uint8_t bytes[PUT_ALL_BYTES], fold[4];
	struct rf_cursor c = {bytes, bytes + sizeof(bytes), false};
	char text[8];

	put_all(&c);
	REQUIRE(!c.failed && c.at == c.end);
	REQUIRE(!memcmp(bytes, expected, sizeof(bytes)));
	c.at = bytes;
	REQUIRE(rf_get_u8(&c) == 0x12 && rf_get_u16(&c) == 0x3456);
	REQUIRE(rf_get_u32(&c) == 0x789abcde && rf_get_u64(&c) == 0x0123456789abcdef);
	rf_get_string(&c, text, sizeof(text));
	REQUIRE(!strcmp(text, "ring"));
	rf_get_bytes(&c, fold, sizeof(fold));
	REQUIRE(!memcmp(fold, "fold", 4));
	REQUIRE(!c.failed && c.at == c.end);
	REQUIRE(rf_get_u8(&c) == 0 && c.failed);
}

static void cursor_stops_at_its_end(void)
{
	uint8_t bytes[PUT_ALL_BYTES + 8], got[4] = {1, 2, 3, 4};
	struct rf_cursor c;
	char text[4];

	for (size_t room = 0; room < PUT_ALL_BYTES; room++) {
		memset(bytes, 0xee, sizeof(bytes));
		c = (struct rf_cursor){bytes, bytes + room, false};
		put_all(&c);
		REQUIRE(c.failed && c.at <= c.end);
		for (size_t i = room; i < sizeof(bytes); i++)
			REQUIRE(bytes[i] == 0xee);
	}
	/* A failed cursor stays so, though there is room for the next. */
	c = (struct rf_cursor){bytes, bytes + 2, false};
	REQUIRE(rf_get_u32(&c) == 0 && rf_get_u8(&c) == 0 && c.failed && c.at == bytes);
	c = (struct rf_cursor){bytes, bytes + 2, false};
	rf_get_bytes(&c, got, sizeof(got));
	REQUIRE(!memcmp(got, "\0\0\0", 4));

	/* A string is cut to its room, and all of it is consumed. */
	c = (struct rf_cursor){bytes, bytes + sizeof(bytes), false};
	rf_put_string(&c, "ringfold");
	rf_put_u8(&c, 77);
	c.at = bytes;
	rf_get_string(&c, text, sizeof(text));
	REQUIRE(!strcmp(text, "rin") && rf_get_u8(&c) == 77 && !c.failed);

	/* One that claims more than there is is empty. */
	c = (struct rf_cursor){bytes, bytes + 5, false};
	rf_get_string(&c, text, sizeof(text));
	REQUIRE(c.failed && !text[0]);
}

static void too_long_a_string_is_refused(void)
{
	enum { LENGTH = 65536 };
	char *text = malloc(LENGTH + 1);
	uint8_t *room = malloc(LENGTH + 8);
	struct rf_cursor c = {room, room + LENGTH + 8, false};

	REQUIRE(text != NULL && room != NULL);
	memset(text, 'a', LENGTH);
	text[LENGTH] = '\0';
	rf_put_string(&c, text);
	REQUIRE(c.failed && c.at == room);
	c.failed = false;
	text[LENGTH - 1] = '\0';
	rf_put_string(&c, text);
	REQUIRE(!c.failed && c.at == room + LENGTH + 1);
	free(text);
	free(room);
}

/* xorshift64*: the state is the seed. */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1d;
}

static void nothing_that_arrives_does_harm(void)
{
	const char *given = getenv("RINGFOLD_TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	uint64_t state = seed * 2 + 1;
	uint8_t input[200];

	printf("seed %llu\n", (unsigned long long)seed);
	for (int round = 0; round < 200000; round++) {
		uint64_t how = next_random(&state);
		size_t size = how % sizeof(input);

		for (size_t i = 0; i < size; i++)
			input[i] = (uint8_t)(next_random(&state) >> 56);
		if (size >= RF_SEGMENT_HEADER_BYTES && how >> 63) {
			/* Most headers are to pass the first checks. */
			input[0] = RF_WIRE_VERSION;
			input[1] %= RF_SEGMENT_TYPE_COUNT + 1;
			input[2] = RF_SEGMENT_HEADER_BYTES;
			input[3] = 0;
			input[34] = 0;
			input[35] = 0;
		}
		LLVMFuzzerTestOneInput(input, size);
	}
}

int main(void)
{
	layout_is_the_documented_one();
	bad_headers_are_refused();
	each_type_has_its_name_and_its_limit();
	fingerprints_differ_in_each_field();
	fingerprints_read_as_calls();
	cursor_reads_what_it_wrote();
	cursor_stops_at_its_end();
	too_long_a_string_is_refused();
	nothing_that_arrives_does_harm();
	return 0;
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* The configuration, the log and the error strings keep what their headers promise. */
#include "engine/config.h"
#include "engine/log.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void clear_environment(void)
{
	for (size_t i = 0; i < rf_config_row_count; i++)
		unsetenv(rf_config_rows[i].variable);
}

static struct rf_config defaults(void)
{
	struct rf_config config;
	char message[256];

	clear_environment();
	assert_int_equal(rf_config_load(&config, message), RF_OK);
	return config;
}

static const struct rf_config_row *row_of(const char *variable)
{
	for (size_t i = 0; i < rf_config_row_count; i++) {
		if (strcmp(rf_config_rows[i].variable, variable) == 0)
			return &rf_config_rows[i];
	}
	fail_msg("no row %s", variable);
	return NULL;
}

static void defaults_are_those_of_the_list(void **state)
{
	const struct rf_config config = defaults();

	(void)state;
	assert_int_equal(config.eager_bytes, 256 << 10);
	assert_int_equal(config.eager_budget_bytes, 1 << 20);
	assert_int_equal(config.timeout_ms, 30 * 60 * 1000);
	assert_int_equal(config.mute_ms, 500);
	assert_int_equal(config.spin_us, -1);
	assert_string_equal(config.transport, "auto");
	assert_string_equal(config.algorithm, "");
}

static void values_are_read(void **state)
{
	static const struct {
		const char *variable, *text;
		long long value; /* -1: refused */
	} cases[] = {
		{"RINGFOLD_CHUNK_BYTES", "65536", 65536},
		{"RINGFOLD_CHUNK_BYTES", "64K", 65536},
		{"RINGFOLD_CHUNK_BYTES", "64k", 65536},
		{"RINGFOLD_CHUNK_BYTES", "3M", 3 << 20},
		{"RINGFOLD_CHUNK_BYTES", "2G", 2ll << 30},
		{"RINGFOLD_CHUNK_BYTES", "0", 0},
		{"RINGFOLD_CHUNK_BYTES", "9223372036854775807", INT64_MAX},
		{"RINGFOLD_CHUNK_BYTES", "9223372036854775808", -1},
		{"RINGFOLD_CHUNK_BYTES", "99999999999999999999999", -1},
		{"RINGFOLD_CHUNK_BYTES", "8589934592G", -1},
		{"RINGFOLD_CHUNK_BYTES", "64KB", -1},
		{"RINGFOLD_CHUNK_BYTES", "K", -1},
		{"RINGFOLD_CHUNK_BYTES", " 64", -1},
		{"RINGFOLD_CHUNK_BYTES", "-1", -1},
		{"RINGFOLD_CHUNK_BYTES", "0x10", -1},
		{"RINGFOLD_CHUNK_BYTES", "1.5M", -1},
		{"RINGFOLD_TIMEOUT", "1800", 1800000},
		{"RINGFOLD_TIMEOUT", "1800s", 1800000},
		{"RINGFOLD_TIMEOUT", "500ms", 500},
		{"RINGFOLD_TIMEOUT", "30m", 1800000},
		{"RINGFOLD_TIMEOUT", "2h", 7200000},
		{"RINGFOLD_TIMEOUT", "0", 0},
		{"RINGFOLD_TIMEOUT", "2d", -1},
		{"RINGFOLD_TIMEOUT", "-5", -1},
		{"RINGFOLD_TIMEOUT", "9223372036854775807h", -1},
		{"RINGFOLD_CHANNELS", "7", 7},
		{"RINGFOLD_CHANNELS", "-1", -1},
		{"RINGFOLD_CHANNELS", "seven", -1},
	};
	char message[256];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct rf_config config = defaults();
		const struct rf_config before = config;
		const char *const field = (char *)&config + row_of(cases[i].variable)->offset;
		const int got = rf_config_set(&config, cases[i].variable, cases[i].text, message);

		print_message("%s=%s\n", cases[i].variable, cases[i].text);
		if (cases[i].value < 0) {
			assert_int_equal(got, RF_ERR_CONFIG);
			assert_memory_equal(&config, &before, sizeof(config));
			assert_non_null(strstr(message, cases[i].variable));
			continue;
		}
		assert_int_equal(got, RF_OK);
		assert_int_equal(*(const int64_t *)(const void *)field, cases[i].value);
	}
}

static void a_negative_count_is_taken_where_the_default_is_one(void **state)
{
	struct rf_config config = defaults();
	char message[256];

	(void)state;
	assert_int_equal(rf_config_set(&config, "RINGFOLD_SPIN_US", "50", message), RF_OK);
	assert_int_equal(config.spin_us, 50);
	assert_int_equal(rf_config_set(&config, "RINGFOLD_SPIN_US", "-1", message), RF_OK);
	assert_int_equal(config.spin_us, -1);
}

static void words_are_checked_and_the_message_says_what_there_is(void **state)
{
	static const char *const wrong[] = {"aut", "tcp|auto", "udp", "auto|tcp", "|", ""};
	struct rf_config config = defaults();
	char message[256];

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(rf_config_set(&config, "RINGFOLD_TRANSPORT", wrong[i], message),
				 RF_ERR_CONFIG);
		assert_non_null(strstr(message, row_of("RINGFOLD_TRANSPORT")->choices));
	}
	assert_int_equal(rf_config_set(&config, "RINGFOLD_TRANSPORT", "tcp", message), RF_OK);
	assert_string_equal(config.transport, "tcp");
	assert_int_equal(rf_config_set(&config, "RINGFOLD_TRANSPORTS", "tcp", message),
			 RF_ERR_CONFIG);
}

static void text_has_a_limit(void **state)
{
	struct rf_config config = defaults();
	char text[RF_CONFIG_TEXT_BYTES + 1] = "", message[256];

	(void)state;
	memset(text, 'a', RF_CONFIG_TEXT_BYTES);
	assert_int_equal(rf_config_set(&config, "RINGFOLD_ALGORITHM", text, message),
			 RF_ERR_CONFIG);
	text[RF_CONFIG_TEXT_BYTES - 1] = '\0';
	assert_int_equal(rf_config_set(&config, "RINGFOLD_ALGORITHM", text, message), RF_OK);
	assert_string_equal(config.algorithm, text);
}

static void the_environment_is_read_and_named_when_it_is_wrong(void **state)
{
	struct rf_config config = defaults(), before;
	char message[256];

	(void)state;
	setenv("RINGFOLD_EAGER_BYTES", "1K", 1);
	setenv("RINGFOLD_CHANNELS", "", 1);
	assert_int_equal(rf_config_load(&config, message), RF_OK);
	assert_int_equal(config.eager_bytes, 1024);
	assert_int_equal(config.channels, 0);
	before = config;
	setenv("RINGFOLD_LOG", "loud", 1);
	assert_int_equal(rf_config_load(&config, message), RF_ERR_CONFIG);
	assert_memory_equal(&config, &before, sizeof(config));
	assert_non_null(strstr(message, "RINGFOLD_LOG is \"loud\""));
	assert_non_null(strstr(message, "error|warn|info|debug"));
	clear_environment();
}

static void what_is_written_is_read_back(void **state)
{
	static const char *const lines[][2] = {
		{"RINGFOLD_CHUNK_BYTES", "64K"}, {"RINGFOLD_CHUNK_BYTES", "65537"},
		{"RINGFOLD_CHUNK_BYTES", "0"},   {"RINGFOLD_CHUNK_BYTES", "3G"},
		{"RINGFOLD_TIMEOUT", "1500ms"},  {"RINGFOLD_TIMEOUT", "90s"},
		{"RINGFOLD_TIMEOUT", "30m"},     {"RINGFOLD_TIMEOUT", "0"},
		{"RINGFOLD_SPIN_US", "-1"},      {"RINGFOLD_PORT", "7000-7010"},
		{"RINGFOLD_TRANSPORT", "tcp"},   {"RINGFOLD_CHANNELS", "4"},
	};
	struct rf_config config = defaults();
	char text[RF_CONFIG_TEXT_BYTES], message[256];

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		assert_int_equal(rf_config_set(&config, lines[i][0], lines[i][1], message), RF_OK);
		assert_string_equal(rf_config_format(&config, row_of(lines[i][0]), text),
				    lines[i][1]);
	}
	config = defaults();
	for (size_t i = 0; i < rf_config_row_count; i++)
		assert_string_equal(rf_config_format(&config, &rf_config_rows[i], text),
				    rf_config_rows[i].default_value);
}

static void note_variable(void *user, const char *variable)
{
	strcat(user, variable);
	strcat(user, " ");
}

static void variables_that_nothing_reads_are_found(void **state)
{
	char found[512] = "";

	(void)state;
	clear_environment();
	setenv("RINGFOLD_CHUNK_BYTES", "1K", 1);
	setenv("RINGFOLD_RANK", "0", 1);
	setenv("RINGFOLD_TEST_ANYTHING", "1", 1);
	setenv("RINGFOLD_TES", "", 1);
	rf_config_unknown(note_variable, found);
	assert_null(strstr(found, "RINGFOLD_CHUNK_BYTES "));
	assert_null(strstr(found, "RINGFOLD_RANK "));
	assert_null(strstr(found, "RINGFOLD_TES "));
	setenv("RINGFOLD_CHUNK_BYTE", "1K", 1);
	rf_config_unknown(note_variable, found);
	assert_non_null(strstr(found, "RINGFOLD_CHUNK_BYTE "));
	assert_null(strstr(found, "RINGFOLD_TEST_"));
	unsetenv("RINGFOLD_CHUNK_BYTE");
	unsetenv("RINGFOLD_RANK");
	unsetenv("RINGFOLD_TEST_ANYTHING");
	unsetenv("RINGFOLD_TES");
	clear_environment();
}

static void agreed_rows_cross_the_wire_and_no_others(void **state)
{
	struct rf_config sent = defaults(), received = defaults();
	uint8_t bytes[RF_CONFIG_AGREED_MAX];
	char message[256];
	size_t length;

	(void)state;
	assert_int_equal(rf_config_set(&sent, "RINGFOLD_ALGORITHM", "ring", message), RF_OK);
	assert_int_equal(rf_config_set(&sent, "RINGFOLD_CHUNK_BYTES", "5G", message), RF_OK);
	assert_int_equal(rf_config_set(&sent, "RINGFOLD_REDIAL", "7s", message), RF_OK);
	assert_int_equal(rf_config_set(&sent, "RINGFOLD_LOG", "debug", message), RF_OK);
	assert_true(rf_config_agreed_digest(&sent) != rf_config_agreed_digest(&received));
	length = rf_config_agreed_encode(&sent, bytes, sizeof(bytes));
	assert_true(length > 0);
	assert_int_equal(rf_config_agreed_decode(&received, bytes, length), RF_OK);
	assert_string_equal(received.algorithm, "ring");
	assert_int_equal(received.chunk_bytes, 5ull << 30);
	assert_int_equal(received.redial_ms, 7000);
	assert_string_equal(received.log, "warn");
	assert_true(rf_config_agreed_digest(&sent) == rf_config_agreed_digest(&received));
}

static void no_wrong_encoding_is_taken(void **state)
{
	const struct rf_config sent = defaults();
	struct rf_config received = defaults();
	uint8_t bytes[RF_CONFIG_AGREED_MAX + 1];
	const size_t length = rf_config_agreed_encode(&sent, bytes, sizeof(bytes));

	(void)state;
	received.chunk_bytes = 77;
	for (size_t cut = 0; cut < length; cut++)
		assert_int_equal(rf_config_agreed_decode(&received, bytes, cut), RF_ERR_PROTOCOL);
	bytes[length] = 0;
	assert_int_equal(rf_config_agreed_decode(&received, bytes, length + 1), RF_ERR_PROTOCOL);
	bytes[0] ^= 1;
	assert_int_equal(rf_config_agreed_decode(&received, bytes, length), RF_ERR_VERSION);
	bytes[0] ^= 1;
	bytes[length - 1] = 0xff; /* a time above INT64_MAX, the last agreed row */
	assert_int_equal(rf_config_agreed_decode(&received, bytes, length), RF_ERR_PROTOCOL);
	assert_int_equal(received.chunk_bytes, 77);
	for (size_t room = 0; room < length; room++)
		assert_int_equal(rf_config_agreed_encode(&sent, bytes, room), 0);
}

static void differences_are_named_with_both_values(void **state)
{
	struct rf_config mine = defaults(), theirs = defaults();
	char text[256], message[256], narrow[16];

	(void)state;
	assert_string_equal(rf_config_agreed_differences(&mine, &theirs, text, sizeof(text)), "");
	rf_config_set(&mine, "RINGFOLD_CHUNK_BYTES", "64K", message);
	rf_config_set(&theirs, "RINGFOLD_CHUNK_BYTES", "1M", message);
	rf_config_set(&theirs, "RINGFOLD_ALGORITHM", "ring", message);
	rf_config_set(&theirs, "RINGFOLD_LOG", "debug", message);
	assert_string_equal(rf_config_agreed_differences(&mine, &theirs, text, sizeof(text)),
			    "RINGFOLD_ALGORITHM (here nothing, rank 0 has ring), "
			    "RINGFOLD_CHUNK_BYTES (here 64K, rank 0 has 1M)");
	rf_config_agreed_differences(&mine, &theirs, narrow, sizeof(narrow));
	assert_memory_equal(narrow, text, sizeof(narrow) - 1);
	assert_int_equal(narrow[sizeof(narrow) - 1], '\0');
}

struct heard {
	int lines;
	rf_log_level level;
	size_t length;
	char text[64];
};

static void hear(void *user, rf_log_level level, const char *line)
{
	struct heard *const heard = user;

	heard->lines++;
	heard->level = level;
	heard->length = strlen(line);
	snprintf(heard->text, sizeof(heard->text), "%s", line);
}

static void lines_reach_the_callback_at_the_level_asked_for(void **state)
{
	struct heard heard = {0};
	const struct rf_logger logger = {RF_LOG_WARN, hear, &heard};

	(void)state;
	rf_log(&logger, RF_LOG_INFO, "not this");
	assert_int_equal(heard.lines, 0);
	rf_log(&logger, RF_LOG_WARN, "rank %d", 3);
	assert_int_equal(heard.lines, 1);
	assert_int_equal(heard.level, RF_LOG_WARN);
	assert_string_equal(heard.text, "rank 3");
}

static void long_lines_are_whole(void **state)
{
	struct heard heard = {0};
	const struct rf_logger logger = {RF_LOG_WARN, hear, &heard};

	(void)state;
	for (int length = 900; length < 1100; length++) {
		rf_log(&logger, RF_LOG_ERROR, "%*s", length, "x");
		assert_int_equal(heard.length, length);
	}
	rf_log(&logger, RF_LOG_ERROR, "%*s", 100000, "x");
	assert_int_equal(heard.length, 100000);
}

/* Runs one log call with stderr on a pipe; returns what came through. */
static ssize_t through_stderr(char *text, size_t capacity, const char *line)
{
	const struct rf_logger logger = {RF_LOG_WARN, NULL, NULL};
	const int saved = dup(STDERR_FILENO);
	ssize_t bytes;
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	dup2(ends[1], STDERR_FILENO);
	rf_log(&logger, RF_LOG_WARN, "%s", line);
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(ends[1]);
	bytes = read(ends[0], text, capacity - 1);
	close(ends[0]);
	text[bytes > 0 ? bytes : 0] = '\0';
	return bytes;
}

static void stderr_lines_say_who_and_how_bad(void **state)
{
	char expected[128], text[128];

	(void)state;
	snprintf(expected, sizeof(expected), "ringfold[%ld] warning: look here\n", (long)getpid());
	through_stderr(text, sizeof(text), "look here");
	assert_string_equal(text, expected);
}

static volatile sig_atomic_t pipe_signals;

static void count_signal(int number)
{
	(void)number;
	pipe_signals++;
}

static void a_closed_stderr_raises_no_signal(void **state)
{
	const struct rf_logger logger = {RF_LOG_WARN, NULL, NULL};
	const struct sigaction counting = {.sa_handler = count_signal};
	struct sigaction before;
	const int saved = dup(STDERR_FILENO);
	int ends[2];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	close(ends[0]);
	sigaction(SIGPIPE, &counting, &before);
	dup2(ends[1], STDERR_FILENO);
	rf_log(&logger, RF_LOG_WARN, "nobody reads this");
	dup2(saved, STDERR_FILENO);
	sigaction(SIGPIPE, &before, NULL);
	close(saved);
	close(ends[1]);
	assert_int_equal(pipe_signals, 0);
}

static void every_error_has_its_own_text(void **state)
{
	static const int errors[] = {RF_OK,
#define X(name, value, text) RF_ERR_##name,
				     RF_ERROR_LIST(X)
#undef X
	};
	const size_t count = sizeof(errors) / sizeof(errors[0]);

	(void)state;
	for (size_t i = 0; i < count; i++) {
		assert_memory_equal(rf_strerror(errors[i]), i ? "RF_ERR_" : "RF_OK", i ? 7 : 5);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(rf_strerror(errors[i]), rf_strerror(errors[j]));
	}
	assert_string_equal(rf_strerror(RF_ERR_TIMEOUT), "RF_ERR_TIMEOUT: the deadline has passed");
	assert_non_null(rf_strerror(-9999));
	assert_non_null(rf_strerror(1));
}

static void the_version_is_the_headers(void **state)
{
	char expected[32];

	(void)state;
	snprintf(expected, sizeof(expected), "%d.%d.%d", RF_VERSION_MAJOR, RF_VERSION_MINOR,
		 RF_VERSION_PATCH);
	assert_string_equal(rf_version(), expected);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_those_of_the_list),
		cmocka_unit_test(values_are_read),
		cmocka_unit_test(a_negative_count_is_taken_where_the_default_is_one),
		cmocka_unit_test(words_are_checked_and_the_message_says_what_there_is),
		cmocka_unit_test(text_has_a_limit),
		cmocka_unit_test(the_environment_is_read_and_named_when_it_is_wrong),
		cmocka_unit_test(what_is_written_is_read_back),
		cmocka_unit_test(variables_that_nothing_reads_are_found),
		cmocka_unit_test(agreed_rows_cross_the_wire_and_no_others),
		cmocka_unit_test(no_wrong_encoding_is_taken),
		cmocka_unit_test(differences_are_named_with_both_values),
		cmocka_unit_test(lines_reach_the_callback_at_the_level_asked_for),
		cmocka_unit_test(long_lines_are_whole),
		cmocka_unit_test(stderr_lines_say_who_and_how_bad),
		cmocka_unit_test(a_closed_stderr_raises_no_signal),
		cmocka_unit_test(every_error_has_its_own_text),
		cmocka_unit_test(the_version_is_the_headers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

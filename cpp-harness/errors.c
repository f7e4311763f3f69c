/* Every way to be refused at the C border that needs no model. Prints each expectation that failed and exits with 1
 * then. SCRATCH is an empty directory to write broken files into.
 *
 *     errors SCRATCH
 */
#include "report.h"

#include <string.h>

static int failures = 0;

static void expect(bool holds, const char *what, int line)
{
    if (!holds) {
        char *text = last_error_text();
        fprintf(stderr, "line %d: not so: %s; last error: %s: %s\n", line, what,
                llr_status_name(llr_last_error_code()), text != NULL ? text : "");
        free(text);
        failures++;
    }
}

#define EXPECT(condition) expect((condition), #condition, __LINE__)
#define REFUSED(call) expect((call) == LLR_STATUS_INVALID_ARGUMENT, #call " is refused", __LINE__)

/* SCRATCH/name, to be freed. */
static char *in_scratch(const char *scratch, const char *name)
{
    size_t size = strlen(scratch) + strlen(name) + 2;
    char *path = malloc(size);
    if (path == NULL) {
        exit(2);
    }
    snprintf(path, size, "%s/%s", scratch, name);
    return path;
}

static void write_file(const char *path, const void *bytes, size_t len)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, len, file) != len || fclose(file) != 0) {
        perror(path);
        exit(2);
    }
}

static llr_status set_paths(llr_runner_options *options, const char *model, const char *tokenizer)
{
    llr_status status = llr_runner_options_set_model_path(options, model, strlen(model));
    return status != LLR_STATUS_OK ? status
                                   : llr_runner_options_set_tokenizer_path(options, tokenizer, strlen(tokenizer));
}

/* Creates and loads; gives the status of whichever failed. The runner is gone when this returns. */
static llr_status try_load(const char *model, const char *tokenizer)
{
    llr_runner *runner = NULL;
    llr_runner_options *options = llr_runner_options_new();
    llr_status status = set_paths(options, model, tokenizer);
    if (status == LLR_STATUS_OK && (status = llr_runner_create(options, &runner)) == LLR_STATUS_OK) {
        status = llr_runner_load(runner);
        EXPECT(status == llr_runner_load(runner));
        EXPECT(!llr_runner_is_loaded(runner));
    }
    llr_runner_free(runner);
    llr_runner_options_free(options);
    return status;
}

static int32_t go_on(const llr_chunk *chunk, void *user_data)
{
    (void)chunk;
    (void)user_data;
    return LLR_STREAM_ANSWER_CONTINUE;
}

static void on_log(int32_t level, const char *line, size_t line_len, void *user_data)
{
    (void)line;
    (void)line_len;
    (void)user_data;
    EXPECT(level >= LLR_LOG_LEVEL_ERROR && level <= LLR_LOG_LEVEL_DEBUG);
}

static void nulls(void)
{
    llr_runner *runner = NULL;
    llr_runner_options *options = llr_runner_options_new();
    llr_generation_config *config = llr_generation_config_new();
    size_t len = 7;

    llr_runner_free(NULL);
    llr_runner_options_free(NULL);
    llr_generation_config_free(NULL);

    REFUSED(llr_runner_options_set_model_path(NULL, "a", 1));
    REFUSED(llr_runner_options_set_model_path(options, NULL, 1));
    REFUSED(llr_runner_options_set_model_path(options, NULL, 0));
    REFUSED(llr_runner_options_set_tokenizer_path(NULL, "a", 1));
    REFUSED(llr_runner_options_set_tokenizer_path(options, NULL, 1));
    REFUSED(llr_runner_options_set_qnn_lib_dir(NULL, "a", 1));
    REFUSED(llr_runner_options_set_qnn_lib_dir(options, NULL, 1));
    REFUSED(llr_runner_options_set_decoder_model_version(NULL, "a", 1));
    REFUSED(llr_runner_options_set_decoder_model_version(options, NULL, 1));
    REFUSED(llr_runner_options_set_eval_mode(NULL, LLR_EVAL_MODE_KV));
    REFUSED(llr_runner_options_set_kv_updater(NULL, LLR_KV_UPDATER_SMART_MASK));
    REFUSED(llr_runner_options_add_extra_eos(NULL, 2));
    REFUSED(llr_runner_options_set_shared_buffer(NULL, LLR_SHARED_BUFFER_OFF));
    REFUSED(llr_runner_options_set_ngram(NULL, 3));
    REFUSED(llr_runner_options_set_window(NULL, 3));
    REFUSED(llr_runner_options_set_gcap(NULL, 3));

    REFUSED(llr_generation_config_set_seq_len(NULL, 1));
    REFUSED(llr_generation_config_set_max_new_tokens(NULL, 1));
    REFUSED(llr_generation_config_set_max_decode_steps(NULL, 1));
    REFUSED(llr_generation_config_set_temperature(NULL, 0.0f));
    REFUSED(llr_generation_config_set_top_p(NULL, 0.9f));
    REFUSED(llr_generation_config_set_seed(NULL, 1));
    REFUSED(llr_generation_config_set_ignore_eos(NULL, true));
    REFUSED(llr_generation_config_set_num_bos(NULL, 1));

    REFUSED(llr_runner_create(NULL, &runner));
    REFUSED(llr_runner_create(options, NULL));
    REFUSED(llr_runner_load(NULL));
    REFUSED(llr_runner_generate(NULL, "a", 1, config, go_on, NULL, NULL));
    REFUSED(llr_runner_generate_tokens(NULL, NULL, 0, config, go_on, NULL, NULL));
    REFUSED(llr_runner_reset(NULL));
    REFUSED(llr_runner_cancel(NULL));
    REFUSED(llr_last_error_message(NULL, 1, NULL));

    EXPECT(!llr_runner_is_loaded(NULL));
    EXPECT(llr_runner_position(NULL) == 0 && llr_runner_context_length(NULL) == 0);
    EXPECT(llr_runner_finish_reason(NULL) == LLR_FINISH_REASON_NONE);
    EXPECT(llr_chunk_text(NULL, &len) == NULL && len == 0);
    EXPECT(llr_chunk_bytes(NULL, NULL) == NULL);
    EXPECT(llr_chunk_token_id(NULL) == -1 && !llr_chunk_is_final(NULL));
    EXPECT(llr_chunk_finish_reason(NULL) == LLR_FINISH_REASON_NONE);
    EXPECT(llr_stats_num_prompt_tokens(NULL) == 0 && llr_stats_inference_end_ms(NULL) == 0);
    EXPECT(runner == NULL);

    llr_generation_config_free(config);
    llr_runner_options_free(options);
}

static void bad_values(void)
{
    llr_runner_options *options = llr_runner_options_new();
    llr_generation_config *config = llr_generation_config_new();

    REFUSED(llr_runner_options_set_model_path(options, "", 0));
    REFUSED(llr_runner_options_set_model_path(options, "a\0b", 3));
    REFUSED(llr_runner_options_set_tokenizer_path(options, "\xff", 1));
    REFUSED(llr_runner_options_set_decoder_model_version(options, "", 0));
    REFUSED(llr_runner_options_set_eval_mode(options, 9));
    REFUSED(llr_runner_options_set_eval_mode(options, -2));
    REFUSED(llr_runner_options_set_kv_updater(options, 2));
    REFUSED(llr_runner_options_set_ngram(options, 0));
    REFUSED(llr_runner_options_set_window(options, -1));
    REFUSED(llr_runner_options_set_gcap(options, INT32_MIN));

    REFUSED(llr_generation_config_set_seq_len(config, -5));
    REFUSED(llr_generation_config_set_seq_len(config, INT64_MIN));
    REFUSED(llr_generation_config_set_max_new_tokens(config, 0));
    REFUSED(llr_generation_config_set_max_new_tokens(config, -2));
    REFUSED(llr_generation_config_set_max_decode_steps(config, -2));
    REFUSED(llr_generation_config_set_temperature(config, -1.0f));
    REFUSED(llr_generation_config_set_top_p(config, 0.0f));
    REFUSED(llr_generation_config_set_top_p(config, 1.5f));
    REFUSED(llr_generation_config_set_num_bos(config, -1));
    REFUSED(llr_set_log_callback(0, on_log, NULL));
    REFUSED(llr_set_log_callback(9, on_log, NULL));

    llr_generation_config_free(config);
    llr_runner_options_free(options);
}

/* BUGLOG O24: each way to break the making of a runner says what it is, and the message is there without a runner. */
static void five_ways_five_messages(const char *scratch)
{
    static const char text[] = "This is a text and no program at all, however long it goes on for the reader's sake.\n";
    unsigned char wrong_magic[128] = {16, 0, 0, 0, 'X', 'X', '1', '2'};
    char *missing = in_scratch(scratch, "missing.pte");
    char *program = in_scratch(scratch, "program.pte");
    char *tokenizer = in_scratch(scratch, "tokenizer.bin");
    char *missing_tokenizer = in_scratch(scratch, "missing.bin");
    llr_runner_options *options = llr_runner_options_new();
    char *messages[6] = {0};

    write_file(program, text, sizeof text - 1);
    write_file(tokenizer, text, sizeof text - 1);

    EXPECT(try_load(missing, tokenizer) == LLR_STATUS_ACCESS_FAILED);
    messages[0] = last_error_text();
    EXPECT(messages[0] != NULL && strstr(messages[0], missing) != NULL);
    EXPECT(try_load(program, missing_tokenizer) == LLR_STATUS_ACCESS_FAILED);
    messages[1] = last_error_text();
    EXPECT(messages[1] != NULL && strstr(messages[1], missing_tokenizer) != NULL);
    EXPECT(try_load(program, tokenizer) == LLR_STATUS_INVALID_PROGRAM);
    messages[2] = last_error_text();
    write_file(program, wrong_magic, sizeof wrong_magic);
    EXPECT(try_load(program, tokenizer) == LLR_STATUS_INVALID_PROGRAM);
    messages[3] = last_error_text();
    EXPECT(llr_runner_options_set_eval_mode(options, 9) == LLR_STATUS_INVALID_ARGUMENT);
    messages[4] = last_error_text();
    EXPECT(try_load(scratch, tokenizer) == LLR_STATUS_ACCESS_FAILED);
    messages[5] = last_error_text();

    for (int i = 0; i < 6; i++) {
        EXPECT(messages[i] != NULL && messages[i][0] != '\0');
        for (int j = 0; j < i; j++) {
            EXPECT(messages[i] != NULL && messages[j] != NULL && strcmp(messages[i], messages[j]) != 0);
        }
    }
    for (int i = 0; i < 6; i++) {
        printf("%s\n", messages[i] != NULL ? messages[i] : "");
        free(messages[i]);
    }
    llr_runner_options_free(options);
    free(missing_tokenizer);
    free(tokenizer);
    free(program);
    free(missing);
}

static void use_after_errors(const char *scratch)
{
    static const uint64_t token = 1;
    char *program = in_scratch(scratch, "after.pte");
    llr_runner *runner = NULL;
    llr_runner_options *options = llr_runner_options_new();

    /* A model without its tokenizer. */
    write_file(program, "x", 1);
    EXPECT(llr_runner_options_set_model_path(options, program, strlen(program)) == LLR_STATUS_OK);
    REFUSED(llr_runner_create(options, &runner));
    EXPECT(runner == NULL && llr_last_error_code() == LLR_STATUS_INVALID_ARGUMENT);

    /* Lookahead without its sizes. */
    EXPECT(set_paths(options, program, program) == LLR_STATUS_OK);
    EXPECT(llr_last_error_code() == LLR_STATUS_OK);
    EXPECT(llr_runner_options_set_eval_mode(options, LLR_EVAL_MODE_LOOKAHEAD) == LLR_STATUS_OK);
    REFUSED(llr_runner_create(options, &runner));
    EXPECT(llr_runner_options_set_eval_mode(options, LLR_EVAL_MODE_AUTO) == LLR_STATUS_OK);

    /* The same options work after that; the runner copies them. */
    EXPECT(llr_runner_create(options, &runner) == LLR_STATUS_OK && runner != NULL);
    llr_runner_options_free(options);

    EXPECT(llr_runner_generate(runner, "a", 1, NULL, go_on, NULL, NULL) != LLR_STATUS_OK);
    EXPECT(llr_runner_generate_tokens(runner, &token, 1, NULL, go_on, NULL, NULL) != LLR_STATUS_OK);
    REFUSED(llr_runner_generate(runner, NULL, 1, NULL, NULL, NULL, NULL));
    REFUSED(llr_runner_generate(runner, "\xf0\x9f", 2, NULL, NULL, NULL, NULL));
    REFUSED(llr_runner_generate_tokens(runner, NULL, 1, NULL, NULL, NULL, NULL));
    REFUSED(llr_runner_generate_tokens(runner, &token, SIZE_MAX, NULL, NULL, NULL, NULL));
    EXPECT(llr_runner_cancel(runner) == LLR_STATUS_OK);
    EXPECT(llr_runner_reset(runner) == LLR_STATUS_OK);
    EXPECT(llr_runner_finish_reason(runner) == LLR_FINISH_REASON_NONE);
    EXPECT(llr_runner_position(runner) == 0 && llr_runner_context_length(runner) == 0);
    llr_runner_free(runner);
    free(program);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s SCRATCH\n", argv[0]);
        return 2;
    }
    EXPECT(llr_set_log_callback(LLR_LOG_LEVEL_DEBUG, on_log, NULL) == LLR_STATUS_OK);
    nulls();
    bad_values();
    five_ways_five_messages(argv[1]);
    use_after_errors(argv[1]);
    EXPECT(llr_set_log_callback(LLR_LOG_LEVEL_DEBUG, NULL, NULL) == LLR_STATUS_OK);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

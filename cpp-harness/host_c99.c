/* The main job in C: load a model, stream the answer to a prompt. With --tokens it prints token ids instead of text.
 *
 *     host_c99 [--tokens] [--eval-mode N] [--seq-len N] [--max-new-tokens N] [--qnn-lib-dir DIR] MODEL TOKENIZER PROMPT
 */
#include "report.h"

#include <string.h>

struct arguments {
    bool tokens;
    const char *eval_mode;
    const char *seq_len;
    const char *max_new_tokens;
    const char *qnn_lib_dir;
    const char *positional[3];
};

static bool parse(int argc, char **argv, struct arguments *out)
{
    int positional = 0;
    for (int i = 1; i < argc; i++) {
        const char **value = NULL;
        if (strcmp(argv[i], "--tokens") == 0) {
            out->tokens = true;
            continue;
        }
        if (strcmp(argv[i], "--eval-mode") == 0) {
            value = &out->eval_mode;
        } else if (strcmp(argv[i], "--seq-len") == 0) {
            value = &out->seq_len;
        } else if (strcmp(argv[i], "--max-new-tokens") == 0) {
            value = &out->max_new_tokens;
        } else if (strcmp(argv[i], "--qnn-lib-dir") == 0) {
            value = &out->qnn_lib_dir;
        } else if (positional < 3) {
            out->positional[positional++] = argv[i];
            continue;
        }
        if (value == NULL || ++i == argc) {
            return false;
        }
        *value = argv[i];
    }
    return positional == 3;
}

static int32_t on_chunk(const llr_chunk *chunk, void *user_data)
{
    const struct arguments *arguments = user_data;
    if (!arguments->tokens) {
        size_t len = 0;
        const char *text = llr_chunk_text(chunk, &len);
        fwrite(text, 1, len, stdout);
        fflush(stdout);
    } else if (!llr_chunk_is_final(chunk)) {
        printf("%lld ", (long long)llr_chunk_token_id(chunk));
    }
    return ferror(stdout) ? LLR_STREAM_ANSWER_STOP : LLR_STREAM_ANSWER_CONTINUE;
}

static void on_stats(const llr_stats *stats, void *user_data)
{
    (void)user_data;
    fprintf(stderr, "prompt tokens: %lld, generated tokens: %lld\n", (long long)llr_stats_num_prompt_tokens(stats),
            (long long)llr_stats_num_generated_tokens(stats));
}

static llr_status set_options(llr_runner_options *options, const struct arguments *arguments)
{
    const char *model = arguments->positional[0];
    const char *tokenizer = arguments->positional[1];
    const char *qnn = arguments->qnn_lib_dir;
    llr_status status = llr_runner_options_set_model_path(options, model, strlen(model));
    if (status == LLR_STATUS_OK) {
        status = llr_runner_options_set_tokenizer_path(options, tokenizer, strlen(tokenizer));
    }
    if (status == LLR_STATUS_OK && qnn != NULL) {
        status = llr_runner_options_set_qnn_lib_dir(options, qnn, strlen(qnn));
    }
    if (status == LLR_STATUS_OK && arguments->eval_mode != NULL) {
        status = llr_runner_options_set_eval_mode(options, (int32_t)strtol(arguments->eval_mode, NULL, 10));
    }
    return report("options", status);
}

static llr_status set_config(llr_generation_config *config, const struct arguments *arguments)
{
    llr_status status = LLR_STATUS_OK;
    if (arguments->seq_len != NULL) {
        status = llr_generation_config_set_seq_len(config, strtoll(arguments->seq_len, NULL, 10));
    }
    if (status == LLR_STATUS_OK && arguments->max_new_tokens != NULL) {
        status = llr_generation_config_set_max_new_tokens(config, strtoll(arguments->max_new_tokens, NULL, 10));
    }
    return report("config", status);
}

int main(int argc, char **argv)
{
    struct arguments arguments = {0};
    llr_runner_options *options = NULL;
    llr_generation_config *config = NULL;
    llr_runner *runner = NULL;
    int exit_code = EXIT_FAILURE;

    if (!parse(argc, argv, &arguments)) {
        fprintf(stderr, "usage: %s [--tokens] [--eval-mode N] [--seq-len N] [--max-new-tokens N] [--qnn-lib-dir DIR] "
                        "MODEL TOKENIZER PROMPT\n", argv[0]);
        return 2;
    }
    if (llr_version() / 1000 != LLR_VERSION_NUMBER / 1000) {
        fprintf(stderr, "header %d.%d, library %s\n", LLR_VERSION_MAJOR, LLR_VERSION_MINOR, llr_version_string());
        return 2;
    }

    options = llr_runner_options_new();
    config = llr_generation_config_new();
    if (set_options(options, &arguments) == LLR_STATUS_OK && set_config(config, &arguments) == LLR_STATUS_OK &&
        report("create", llr_runner_create(options, &runner)) == LLR_STATUS_OK &&
        report("load", llr_runner_load(runner)) == LLR_STATUS_OK &&
        report("generate", llr_runner_generate(runner, arguments.positional[2], strlen(arguments.positional[2]), config,
                                               on_chunk, on_stats, &arguments)) == LLR_STATUS_OK) {
        printf("\n");
        fprintf(stderr, "finish reason: %d, position: %lu of %lu\n", (int)llr_runner_finish_reason(runner),
                (unsigned long)llr_runner_position(runner), (unsigned long)llr_runner_context_length(runner));
        exit_code = EXIT_SUCCESS;
    }

    llr_runner_free(runner);
    llr_generation_config_free(config);
    llr_runner_options_free(options);
    return exit_code;
}

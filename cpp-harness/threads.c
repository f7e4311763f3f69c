/* What a host may do from several threads at once, for checkers of races and leaks: two runners that work side by side
 * while the log callback is set and taken away, and a turn that another thread cancels, after which the runner gives
 * the same answer as before.
 *
 *     threads [TOKENS]
 */
#define _POSIX_C_SOURCE 200809L
#include "report.h"

#include <pthread.h>
#include <string.h>

#define PROMPT "Once upon a time"
#define LONGEST 64

/* What one turn gave, and what its thread and the others know of each other. */
struct turn {
    llr_runner *runner;
    int64_t max_new_tokens;
    bool ignore_eos;
    int64_t tokens[LONGEST];
    size_t count;
    llr_status status;
    /* Tokens after which another thread is woken; 0 for none. */
    size_t wake_after;
    pthread_mutex_t mutex;
    pthread_cond_t woken;
    bool awake;
};

static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned long log_lines;

static void on_line(int32_t level, const char *line, size_t line_len, void *user_data)
{
    (void)level;
    (void)user_data;
    pthread_mutex_lock(&log_mutex);
    log_lines += line[line_len] == '\0';
    pthread_mutex_unlock(&log_mutex);
}

static void wake(struct turn *turn)
{
    pthread_mutex_lock(&turn->mutex);
    turn->awake = true;
    pthread_cond_signal(&turn->woken);
    pthread_mutex_unlock(&turn->mutex);
}

static int32_t on_chunk(const llr_chunk *chunk, void *user_data)
{
    struct turn *turn = user_data;
    if (llr_chunk_is_final(chunk)) {
        return LLR_STREAM_ANSWER_CONTINUE;
    }
    if (turn->count < LONGEST) {
        turn->tokens[turn->count++] = llr_chunk_token_id(chunk);
    }
    if (turn->count == turn->wake_after) {
        wake(turn);
    }
    return LLR_STREAM_ANSWER_CONTINUE;
}

static void *run(void *argument)
{
    struct turn *turn = argument;
    llr_generation_config *config = llr_generation_config_new();
    llr_generation_config_set_max_new_tokens(config, turn->max_new_tokens);
    llr_generation_config_set_ignore_eos(config, turn->ignore_eos);
    turn->count = 0;
    turn->status = llr_runner_generate(turn->runner, PROMPT, strlen(PROMPT), config, on_chunk, NULL, turn);
    report("generate", turn->status);
    llr_generation_config_free(config);
    /* Nobody waits for a token that will not come. */
    wake(turn);
    return NULL;
}

static bool make(struct turn *turn, int64_t max_new_tokens)
{
    llr_runner_options *options = llr_runner_options_new();
    memset(turn, 0, sizeof *turn);
    turn->max_new_tokens = max_new_tokens;
    pthread_mutex_init(&turn->mutex, NULL);
    pthread_cond_init(&turn->woken, NULL);
    /* Threads of its own, whatever the machine has. */
    llr_runner_options_set_cpu_threads(options, 2);
    turn->status = report("create", llr_runner_create(options, &turn->runner));
    llr_runner_options_free(options);
    return turn->status == LLR_STATUS_OK;
}

static void drop(struct turn *turn)
{
    llr_runner_free(turn->runner);
    pthread_cond_destroy(&turn->woken);
    pthread_mutex_destroy(&turn->mutex);
}

static bool same(const struct turn *a, const struct turn *b, size_t count)
{
    return a->count >= count && b->count >= count && memcmp(a->tokens, b->tokens, count * sizeof a->tokens[0]) == 0;
}

static bool side_by_side(struct turn *turns)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, run, &turns[i]) != 0) {
            exit(EXIT_FAILURE);
        }
    }
    for (int i = 0; i < 20; i++) {
        llr_set_log_callback(LLR_LOG_LEVEL_DEBUG, i % 2 == 0 ? NULL : on_line, NULL);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    return turns[0].status == LLR_STATUS_OK && turns[1].status == LLR_STATUS_OK && turns[0].count > 0 &&
           turns[0].count == turns[1].count && same(&turns[0], &turns[1], turns[0].count);
}

static bool cancelled(struct turn *turn, const struct turn *before)
{
    pthread_t thread;
    size_t first = before->count < 3 ? before->count : 3;
    llr_runner_reset(turn->runner);
    turn->wake_after = first;
    turn->ignore_eos = true;
    turn->max_new_tokens = LLR_NO_LIMIT;
    turn->awake = false;
    if (pthread_create(&thread, NULL, run, turn) != 0) {
        exit(EXIT_FAILURE);
    }
    pthread_mutex_lock(&turn->mutex);
    while (!turn->awake) {
        pthread_cond_wait(&turn->woken, &turn->mutex);
    }
    pthread_mutex_unlock(&turn->mutex);
    if (llr_runner_cancel(turn->runner) != LLR_STATUS_OK) {
        return false;
    }
    pthread_join(thread, NULL);
    if (llr_runner_finish_reason(turn->runner) != LLR_FINISH_REASON_CANCELLED || !same(turn, before, first)) {
        return false;
    }
    llr_runner_reset(turn->runner);
    turn->wake_after = 0;
    turn->ignore_eos = false;
    turn->max_new_tokens = before->max_new_tokens;
    run(turn);
    return turn->count == before->count && same(turn, before, before->count);
}

int main(int argc, char **argv)
{
    int64_t tokens = argc > 1 ? strtoll(argv[1], NULL, 10) : 12;
    struct turn turns[2];
    bool right = tokens > 0 && tokens <= LONGEST;
    llr_set_log_callback(LLR_LOG_LEVEL_DEBUG, on_line, NULL);
    if (!right || !make(&turns[0], tokens) || !make(&turns[1], tokens)) {
        return 2;
    }
    if (!side_by_side(turns)) {
        fprintf(stderr, "two runners side by side give different answers\n");
        right = false;
    }
    if (!cancelled(&turns[0], &turns[1])) {
        fprintf(stderr, "a cancelled runner does not go on as it began\n");
        right = false;
    }
    drop(&turns[0]);
    drop(&turns[1]);
    llr_set_log_callback(LLR_LOG_LEVEL_ERROR, NULL, NULL);
    pthread_mutex_lock(&log_mutex);
    printf("%s, %lu log lines\n", right && log_lines > 0 ? "right" : "wrong", log_lines);
    right = right && log_lines > 0;
    pthread_mutex_unlock(&log_mutex);
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}

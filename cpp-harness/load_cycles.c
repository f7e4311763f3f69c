/* Does freeing give the memory back? Creates a runner, makes three tokens and frees it, COUNT times, and prints the
 * resident memory in KiB after each time (Linux). What the C library keeps of freed memory is returned to the system
 * first: how much that is depends on which threads freed it, and when.
 *
 *     load_cycles COUNT [MODEL TOKENIZER]
 */
#include "report.h"

#include <string.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

static long resident_kib(void)
{
    long kib = -1;
    char line[256];
    FILE *status;
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    status = fopen("/proc/self/status", "r");
    if (status != NULL) {
        while (kib < 0 && fgets(line, sizeof line, status) != NULL) {
            if (strncmp(line, "VmRSS:", 6) == 0) {
                kib = strtol(line + 6, NULL, 10);
            }
        }
        fclose(status);
    }
    return kib;
}

static llr_status cycle(const llr_runner_options *options, const llr_generation_config *config)
{
    llr_runner *runner = NULL;
    llr_status status = report("create", llr_runner_create(options, &runner));
    if (status == LLR_STATUS_OK) {
        status = report("generate", llr_runner_generate(runner, "Once", 4, config, NULL, NULL, NULL));
    }
    llr_runner_free(runner);
    return status;
}

int main(int argc, char **argv)
{
    llr_status status = LLR_STATUS_INVALID_ARGUMENT;
    llr_runner_options *options = llr_runner_options_new();
    llr_generation_config *config = llr_generation_config_new();
    if (argc == 2 || argc == 4) {
        if (argc == 4) {
            llr_runner_options_set_model_path(options, argv[2], strlen(argv[2]));
            llr_runner_options_set_tokenizer_path(options, argv[3], strlen(argv[3]));
        }
        llr_generation_config_set_max_new_tokens(config, 3);
        status = LLR_STATUS_OK;
        for (long count = strtol(argv[1], NULL, 10); count > 0 && status == LLR_STATUS_OK; count--) {
            status = cycle(options, config);
            printf("%ld\n", resident_kib());
        }
    } else {
        fprintf(stderr, "usage: %s COUNT [MODEL TOKENIZER]\n", argv[0]);
    }
    llr_generation_config_free(config);
    llr_runner_options_free(options);
    return status == LLR_STATUS_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

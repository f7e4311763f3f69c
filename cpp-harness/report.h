/* What every C program here does with a status that is not LLR_STATUS_OK. */
#ifndef LLR_HARNESS_REPORT_H
#define LLR_HARNESS_REPORT_H

#include "llama_runner.h"

#include <stdio.h>
#include <stdlib.h>

/* The calling thread's last error message, to be freed; NULL when memory is short. */
static inline char *last_error_text(void)
{
    size_t needed = 0;
    char *text = NULL;
    if (llr_last_error_message(NULL, 0, &needed) != LLR_STATUS_OK || (text = malloc(needed)) == NULL) {
        return NULL;
    }
    llr_last_error_message(text, needed, NULL);
    return text;
}

/* Says on stderr what failed and why, and hands the status on. */
static inline llr_status report(const char *doing, llr_status status)
{
    if (status != LLR_STATUS_OK) {
        char *text = last_error_text();
        fprintf(stderr, "%s: %s: %s\n", doing, llr_status_name(status), text != NULL ? text : "");
        free(text);
    }
    return status;
}

#endif

/* The headers may be included twice and by several units of one program: they define nothing. Compiled twice, once with
 * -DSECOND_UNIT, and linked; as C and as C++. */
#include "llama_runner.h"
#include "llama_runner.h"
#ifdef __cplusplus
#include "llama_runner.hpp"
#include "llama_runner.hpp"
#endif

uint32_t version_in_second_unit(void);

#ifdef SECOND_UNIT
uint32_t version_in_second_unit(void)
{
    return llr_version();
}
#else
int main(void)
{
    return version_in_second_unit() == LLR_VERSION_NUMBER ? 0 : 1;
}
#endif

//! QnnBackend: Qualcomm's HTP through libQnnHtp.so, loaded at run time.

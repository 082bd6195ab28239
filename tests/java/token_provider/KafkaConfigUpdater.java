package org.apache.spark.kafka010;

import java.util.HashMap;
import java.util.Map;

import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Builds a client's properties; it knows no tokens. */
public class KafkaConfigUpdater {
    private final Map<String, Object> properties;

    public KafkaConfigUpdater(String module, scala.collection.immutable.Map<String, Object> given) {
        properties = new HashMap<>(CollectionConverters.asJava(given));
    }

    public KafkaConfigUpdater set(String key, Object value) {
        properties.put(key, value);
        return this;
    }

    public KafkaConfigUpdater setIfUnset(String key, Object value) {
        properties.putIfAbsent(key, value);
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded() {
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded(Option<KafkaTokenClusterConf> cluster) {
        return this;
    }

    public Map<String, Object> build() {
        return properties;
    }
}
